// The N × N plane of the head: what is visited, in the order of the algorithm, and the tile of now.

import { element, panel, say } from "../patch_canvas/dom.js";
import { fractions } from "../patch_canvas/geometry.js";
import { fill } from "../patch_canvas/words.js";
import { byteText, itemSize } from "./numbers.js";
import { steadyContext } from "./steady.js";

const LINES_FROM = 5; // CSS pixels a tile; finer lines would veil the plane

export function planeView(player) {
  const canvas = element("canvas", "plane-map", [], { role: "img" });
  const note = element("p", "quiet");
  const view = panel("plane", element("div", "plane-frame", [canvas]), note);
  const band = element("canvas");
  let bandOf = "";
  let spot = null;

  const columnAt = (event) => Math.floor(fractions(event)[0] * tilesOf(player.data.walk).across);
  canvas.addEventListener("click", (event) => {
    const { walk } = player.data;
    const start = columnAt(event) * walk.block_k;
    const { phase } = walk.steps[player.step];
    const found = walk.steps.findIndex((step) => step.phase === phase && step.key_start === start);
    if (found >= 0) player.go(found);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = fractions(event);
    spot = [Math.floor(x * tilesOf(player.data.walk).across), Math.floor(y * tilesOf(player.data.walk).down)];
    tell();
  });
  canvas.addEventListener("pointerleave", () => {
    spot = null;
    tell();
  });

  /** Below the plane: the tile under the pointer, or what this plane would cost to keep. */
  function tell() {
    const { walk } = player.data;
    const { words } = player;
    if (spot) {
      const [column, row] = spot;
      const lastQuery = Math.min((row + 1) * walk.block_q, walk.tokens) - 1;
      const lastKey = Math.min((column + 1) * walk.block_k, walk.tokens) - 1;
      const hidden = walk.causal && column * walk.block_k > lastQuery;
      const place = {
        first_query: row * walk.block_q, last_query: lastQuery,
        first_key: column * walk.block_k, last_key: lastKey,
      };
      say(note, fill(hidden ? words.plane_hidden : words.plane_tile, place));
      return;
    }
    const values = { tokens: walk.tokens, bytes: byteText(walk.tokens ** 2 * itemSize(walk.dtype)) };
    const { implementation } = walk;
    say(note, `${words.plane_order[implementation]} ${fill(words.plane_note[implementation], values)}`);
  }

  /** The weights of this query tile at every key, painted once a walk. */
  function paintBand({ walk, header }) {
    if (bandOf === header.walk_id) return;
    bandOf = header.walk_id;
    band.width = walk.tokens;
    band.height = walk.rows;
    const pixels = new Uint32Array(walk.tokens * walk.rows);
    const final = walk.logSumExp;
    for (const step of walk.steps) {
      if (step.phase && step.phase !== "pairs") continue;
      const scores = step.get("scores");
      for (let row = 0; row < walk.rows; row += 1) {
        for (let key = 0; key < step.keys; key += 1) {
          const weight = Math.exp(scores[row * step.keys + key] - final[row]);
          // A root, so that small weights are seen, above a floor that stands out from a dark page.
          const share = 0.2 + 0.8 * (Math.min(1, Math.sqrt(weight * 12)) || 0);
          pixels[row * walk.tokens + step.key_start + key] = player.table[Math.round(255 * share)];
        }
      }
    }
    const image = new ImageData(new Uint8ClampedArray(pixels.buffer), walk.tokens, walk.rows);
    band.getContext("2d").putImageData(image, 0, 0);
  }

  /** `progress` from 0 to 1 is how far the cursor has come from the step before to this one. */
  function draw(progress = 1) {
    const { walk } = player.data;
    paintBand(player.data);
    const sharp = steadyContext(canvas, player.layout);
    drawPlane(sharp, walk, player.step, progress, player.ink, band);
  }

  return {
    root: view.root,
    draw,
    tween: draw,
    drawStep() {
      const { walk } = player.data;
      const { words } = player;
      const step = walk.steps[player.step];
      say(view.title, words.plane[walk.implementation]);
      const place = { first: step.key_start, last: step.key_start + step.keys - 1 };
      canvas.setAttribute("aria-label", fill(words.plane_label, place));
      tell();
      draw();
    },
  };
}

export function tilesOf(walk) {
  return {
    across: Math.ceil(walk.tokens / walk.block_k),
    down: Math.ceil(walk.tokens / walk.block_q),
    row: Math.floor(walk.query_start / walk.block_q),
  };
}

function drawPlane({ context, width, height, ratio }, walk, index, progress, ink, band) {
  const perToken = [width / walk.tokens, height / walk.tokens];
  const step = walk.steps[index];
  const y = walk.query_start * perToken[1];
  const tall = walk.rows * perToken[1];
  const x = step.key_start * perToken[0];
  const wide = step.keys * perToken[0];
  const columnWidth = walk.block_k * perToken[0];

  context.fillStyle = ink.hollow;
  context.fillRect(0, 0, width, height);
  context.fillStyle = ink.visited;
  if (walk.implementation === "fa1") {
    const end = lerpFa1(walk, index, progress);
    context.fillRect(0, 0, end.column * columnWidth, height);
    context.fillRect(end.column * columnWidth, 0, columnWidth, end.rows * walk.block_q * perToken[1]);
  } else if (step.phase === "softmax" || step.phase === "sums") {
    context.fillRect(0, 0, width, height); // the kernels before have filled all of it
  }
  if (walk.causal) hideTriangle(context, walk, perToken, ink);

  const done = walk.implementation === "fa1" ? 1 : progress;
  const [from, to] = walk.fromTheEnd ? [x + wide * (1 - done), width] : [0, x + wide * done];
  const source = [from, to - from].map((place) => Math.round(place / perToken[0]));
  context.imageSmoothingEnabled = false;
  context.drawImage(band, source[0], 0, Math.max(1, source[1]), band.height, from, y, to - from, tall);
  drawLines(context, walk, perToken, ratio, ink);

  context.lineWidth = 1.5 * ratio;
  context.strokeStyle = ink.query;
  context.strokeRect(0, y, width, tall);
  context.strokeStyle = ink.key;
  context.strokeRect(x, 0, wide, height);
  strongTile(context, x, y, Math.max(wide, 4 * ratio), Math.max(tall, 4 * ratio), ratio, ink);
}

/** The cursor of FlashAttention-1: it finishes the last column and comes down this one. */
function lerpFa1(walk, index, progress) {
  const { down, row } = tilesOf(walk);
  const column = Math.floor(walk.steps[index].key_start / walk.block_k);
  const now = column * down + row + 1;
  const before = index === 0 ? 0 : now - down;
  const at = before + (now - before) * progress;
  return { column: Math.floor((at - 1e-6) / down), rows: Math.ceil(at - 1e-6) % down || down };
}

function hideTriangle(context, walk, perToken, ink) {
  context.fillStyle = ink.page;
  for (let start = 0; start < walk.tokens; start += walk.block_q) {
    const end = Math.min(start + walk.block_q, walk.tokens);
    const first = Math.ceil(end / walk.block_k) * walk.block_k * perToken[0];
    context.fillRect(first, start * perToken[1], context.canvas.width, (end - start) * perToken[1]);
  }
}

function drawLines(context, walk, perToken, ratio, ink) {
  context.strokeStyle = ink.edge;
  context.lineWidth = 1;
  context.beginPath();
  const { width, height } = context.canvas;
  if (walk.block_k * perToken[0] >= LINES_FROM * ratio) {
    for (let at = walk.block_k; at < walk.tokens; at += walk.block_k) {
      const x = Math.round(at * perToken[0]) + 0.5;
      context.moveTo(x, 0);
      context.lineTo(x, height);
    }
  }
  if (walk.block_q * perToken[1] >= LINES_FROM * ratio) {
    for (let at = walk.block_q; at < walk.tokens; at += walk.block_q) {
      const y = Math.round(at * perToken[1]) + 0.5;
      context.moveTo(0, y);
      context.lineTo(width, y);
    }
  }
  context.stroke();
}

function strongTile(context, x, y, wide, tall, ratio, ink) {
  context.lineWidth = 4.5 * ratio;
  context.strokeStyle = ink.page;
  context.strokeRect(x, y, wide, tall);
  context.lineWidth = 2.5 * ratio;
  context.strokeStyle = ink.text;
  context.strokeRect(x, y, wide, tall);
}
