// The score tile as a heat map: queries down, keys across; hover for a value, click to follow a row.

import { element, panel, say } from "../patch_canvas/dom.js";
import { fractions } from "../patch_canvas/geometry.js";
import { fill } from "../patch_canvas/words.js";
import { figure, tokenText } from "./numbers.js";
import { steadyContext } from "./steady.js";
import { scoresOf } from "./walk.js";

export function tileView(player) {
  const canvas = element("canvas", "score-tile", [], { role: "img", tabindex: "0" });
  const readout = element("p", "quiet two-lines");
  const low = element("span");
  const high = element("span");
  const strip = element("div", "strip");
  const bar = element("div", "scale", [low, strip, high]);
  const frame = element("div", "tile-frame", [canvas]);
  const view = panel("scores", frame, bar, readout);
  const cells = element("canvas");
  let spot = null;

  const cellAt = (event) => {
    const { walk } = player.data;
    const [x, y] = fractions(event);
    const clamp = (value, count) => Math.min(Math.max(Math.floor(value * count), 0), count - 1);
    return [clamp(y, walk.rows), clamp(x, walk.steps[player.step].keys)];
  };
  canvas.addEventListener("pointermove", (event) => {
    spot = cellAt(event);
    tell();
  });
  canvas.addEventListener("pointerleave", () => {
    spot = null;
    tell();
  });
  canvas.addEventListener("click", (event) => player.follow(cellAt(event)[0]));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    player.follow(player.row + move);
  });

  function tell() {
    const { header, walk } = player.shown;
    const step = walk.steps[player.step];
    const { words } = player;
    if (!spot || spot[1] >= step.keys) {
      say(readout, words.tile_hint);
      return;
    }
    const [row, key] = spot;
    say(readout, fill(words.tile_value, {
      query: tokenText(words, header, walk.query_start + row),
      key: tokenText(words, header, step.key_start + key),
      row: walk.query_start + row,
      column: step.key_start + key,
      value: figure(scoresOf(step, row)[key]),
    }));
  }

  return {
    root: view.root,
    tween() {},
    drawStep() {
      const { walk } = player.shown;
      const { words } = player;
      const step = walk.steps[player.step];
      const reach = reachOf(walk);
      paintScores(cells, step, walk.rows, reach, player);
      say(view.title, words.tile);
      say(view.hint, fill(words.tile_size, { rows: walk.rows, keys: step.keys }));
      say(low, figure(-reach, 2));
      say(high, figure(reach, 2));
      strip.style.background = `linear-gradient(to right, ${player.signedStops})`;
      const across = Math.min(step.keys, walk.block_k); // a kernel of naive takes whole rows at once
      frame.style.aspectRatio = `${walk.block_k} / ${walk.rows}`;
      canvas.style.width = `${(100 * across) / walk.block_k}%`;
      canvas.setAttribute("aria-label", fill(words.tile_label, { rows: walk.rows, keys: step.keys }));
      tell();
      const sharp = steadyContext(canvas, `${player.layout} ${across}/${walk.rows}`);
      const { context, width, height, ratio } = sharp;
      context.imageSmoothingEnabled = false;
      context.drawImage(cells, 0, 0, width, height);
      const cell = height / walk.rows;
      const around = Math.max(0, (7 * ratio - cell) / 2);
      context.lineWidth = 3.5 * ratio;
      context.strokeStyle = player.ink.page;
      const lowest = height - cell - 2 * around - ratio;
      const y = Math.min(Math.max(player.row * cell - around, ratio), lowest);
      context.strokeRect(ratio, y, width - 2 * ratio, cell + 2 * around);
      context.lineWidth = 1.75 * ratio;
      context.strokeStyle = player.ink.text;
      context.strokeRect(ratio, y, width - 2 * ratio, cell + 2 * around);
    },
  };
}

const reaches = new WeakMap();

/** The largest finite score of the whole walk, so that colours mean the same at every step. */
function reachOf(walk) {
  if (reaches.has(walk)) return reaches.get(walk);
  let reach = 0;
  for (const step of walk.steps) {
    for (const score of step.get("scores")) {
      const size = Math.abs(score);
      if (size > reach && size < Infinity) reach = size;
    }
  }
  reaches.set(walk, reach || 1);
  return reach || 1;
}

/** Hidden scores stay the page's colour; what is not a number is black. */
function paintScores(cells, step, rows, reach, { signedTable, ink }) {
  const scores = step.get("scores");
  const pixels = new Uint32Array(scores.length);
  for (let at = 0; at < scores.length; at += 1) {
    const score = scores[at];
    if (Number.isNaN(score)) pixels[at] = 0xff000000;
    else if (score === -Infinity) pixels[at] = ink.hollowPixel;
    else {
      const share = Math.min(Math.max(0.5 + (0.5 * score) / reach, 0), 1);
      pixels[at] = signedTable[Math.round(255 * share)];
    }
  }
  cells.width = step.keys;
  cells.height = rows;
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), step.keys, rows);
  cells.getContext("2d").putImageData(image, 0, 0);
}
