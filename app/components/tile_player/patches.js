// The picture: these query patches against those key patches.

import { element, panel, say } from "../patch_canvas/dom.js";
import { fractions, patchAt, patchBox, pictureAspect } from "../patch_canvas/geometry.js";
import { drawPhoto } from "../patch_canvas/photo.js";
import { fill } from "../patch_canvas/words.js";
import { tokenText } from "./numbers.js";
import { steadyContext } from "./steady.js";

export function patchesView(player) {
  const canvas = element("canvas", "patches", [], { role: "img" });
  const queries = legendLine("query");
  const keys = legendLine("key");
  const view = panel("on-picture", canvas, element("div", "legend", [queries.root, keys.root]));

  canvas.addEventListener("click", (event) => {
    const { header, walk } = player.data;
    const patch = patchAt(header, ...fractions(event));
    if (!patch) return;
    const token = header.prefix.length + patch[0] * header.grid.columns + patch[1];
    const row = token - walk.query_start;
    if (row >= 0 && row < walk.rows) player.follow(row);
  });

  return {
    root: view.root,
    tween() {},
    drawStep() {
      const { header, walk } = player.data;
      const { words } = player;
      const step = walk.steps[player.step];
      const aspect = String(pictureAspect(header));
      canvas.style.aspectRatio = aspect;
      say(view.title, words.picture);
      say(view.hint, words.picture_hint);
      const lastKey = step.key_start + step.keys - 1;
      const lastQuery = walk.query_start + walk.rows - 1;
      say(queries.text, rangeText(words.queries_are, words, header, walk.query_start, lastQuery));
      say(keys.text, rangeText(words.keys_are, words, header, step.key_start, lastKey));
      const spoken = { queries: queries.text.textContent, keys: keys.text.textContent };
      canvas.setAttribute("aria-label", fill(words.picture_label, spoken));
      drawPatches(steadyContext(canvas, `${player.layout} ${aspect}`), player, step);
    },
  };
}

function legendLine(kind) {
  const text = element("span");
  return { root: element("p", "", [element("i", `swatch ${kind}`), text]), text };
}

function rangeText(template, words, header, first, last) {
  return fill(template, {
    first, last,
    from: tokenText(words, header, first), to: tokenText(words, header, last),
  });
}

function drawPatches(sharp, player, step) {
  const { header, walk } = player.data;
  const { context, width, height, ratio } = sharp;
  drawPhoto(sharp, player.bitmap, header);
  const keys = runs(header, step.key_start, step.key_start + step.keys);
  const queries = runs(header, walk.query_start, walk.query_start + walk.rows);
  const path = (boxes) => {
    const shape = new Path2D();
    for (const [row, from, to] of boxes) {
      const first = patchBox(header, row, from, width, height);
      const last = patchBox(header, row, to, width, height);
      shape.rect(first.x, first.y, last.x + last.w - first.x, first.h);
    }
    return shape;
  };
  context.fillStyle = "rgba(12, 10, 20, 0.5)";
  context.fillRect(0, 0, width, height);
  const clear = path(keys);
  clear.addPath(path(queries));
  context.save();
  context.clip(clear);
  drawPhoto(sharp, player.bitmap, header);
  context.restore();
  tint(context, path(keys), keys, header, sharp, player.ink.keyOnPhoto, []);
  tint(context, path(queries), queries, header, sharp, player.ink.queryOnPhoto, [5, 3]);
  const token = walk.query_start + player.row - header.prefix.length;
  if (token < 0) return;
  const { columns } = header.grid;
  const box = patchBox(header, Math.floor(token / columns), token % columns, width, height);
  const least = 9 * ratio;
  const w = Math.max(box.w, least);
  const h = Math.max(box.h, least);
  context.lineWidth = 4 * ratio;
  context.strokeStyle = "#000";
  context.strokeRect(box.x + (box.w - w) / 2, box.y + (box.h - h) / 2, w, h);
  context.lineWidth = 2 * ratio;
  context.strokeStyle = "#fff";
  context.strokeRect(box.x + (box.w - w) / 2, box.y + (box.h - h) / 2, w, h);
}

/** Tokens first..end as runs of patches within a row: [row, first column, last column]. */
function runs(header, first, end) {
  const { columns } = header.grid;
  const found = [];
  let at = Math.max(0, first - header.prefix.length);
  const stop = end - header.prefix.length;
  while (at < stop) {
    const row = Math.floor(at / columns);
    const until = Math.min((row + 1) * columns, stop);
    found.push([row, at % columns, (until - 1) % columns]);
    at = until;
  }
  return found;
}

/** A light wash and the outline of the whole region, without lines inside it. */
function tint(context, shape, boxes, header, { width, height, ratio }, colour, dash) {
  context.save();
  context.globalAlpha = 0.28;
  context.fillStyle = colour;
  context.fill(shape);
  context.restore();
  const inside = (row, column) => boxes.some(([r, from, to]) => r === row && column >= from && column <= to);
  const outline = new Path2D();
  for (const [row, from, to] of boxes) {
    for (let column = from; column <= to; column += 1) {
      const { x, y, w, h } = patchBox(header, row, column, width, height);
      edge(outline, !inside(row - 1, column), x, y, x + w, y);
      edge(outline, !inside(row + 1, column), x, y + h, x + w, y + h);
      edge(outline, !inside(row, column - 1), x, y, x, y + h);
      edge(outline, !inside(row, column + 1), x + w, y, x + w, y + h);
    }
  }
  context.save();
  context.lineCap = "square";
  context.lineWidth = 4 * ratio;
  context.strokeStyle = "rgba(12, 10, 20, 0.85)";
  context.stroke(outline);
  context.setLineDash(dash.map((part) => part * ratio));
  context.lineWidth = 2 * ratio;
  context.strokeStyle = colour;
  context.stroke(outline);
  context.restore();
}

function edge(path, wanted, x0, y0, x1, y1) {
  if (!wanted) return;
  path.moveTo(x0, y0);
  path.lineTo(x1, y1);
}
