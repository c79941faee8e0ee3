// All heads of the chosen layer as small maps, and the colour bar that they share.

import { onScale, scaleTop, ticks } from "./colours.js";
import { button, element, panel, say, segmented } from "./dom.js";
import { gridAspect, sharpContext, valueAt } from "./geometry.js";
import { drawMarks } from "./photo.js";
import { watchPatches } from "./picture.js";
import { fill, percent, probability, queryName } from "./words.js";

/** The geometry of a map without its picture: the grid's box fills it. */
export function mapFrame(header) {
  const { rows, columns } = header.grid;
  return { size: [columns, rows], grid: { rows, columns, box: [0, 0, columns, rows] } };
}

/** Draws one map out of an atlas, every patch one block of colour; too small for that, it is smoothed,
 * because a patch that falls between two pixels must not vanish. */
export function drawMap({ context }, atlas, header, layer, head, box) {
  const { rows, columns } = header.grid;
  context.imageSmoothingEnabled = box.w < 2 * columns || box.h < 2 * rows;
  context.drawImage(atlas, head * columns, layer * rows, columns, rows, box.x, box.y, box.w, box.h);
  context.imageSmoothingEnabled = true;
}

function headCell(app, head) {
  const canvas = element("canvas", "map");
  const name = element("span", "name");
  const value = element("span", "number quiet");
  const broken = element("span", "broken");
  const root = button("head", () => app.change({ head }), [
    element("span", "frame", [canvas, broken]),
    element("span", "caption", [name, value]),
  ]);
  root.dataset.head = head;
  watchPatches(canvas, () => mapFrame(app.state.data.header), app.hover, () => {});
  return { root, canvas, name, value, broken };
}

function drawCell(app, cell, head, state) {
  const { selection, data, hover, atlas, largest } = state;
  const { header, maps } = data;
  const { layer } = selection;
  const fine = Number.isFinite(largest.query[layer][head]);
  cell.canvas.style.aspectRatio = String(gridAspect(header));
  cell.root.setAttribute("aria-pressed", String(selection.head === head));
  say(cell.name, fill(app.words.head, { head }));
  say(cell.broken, fine ? "" : app.words.not_a_map);
  const sharp = sharpContext(cell.canvas);
  if (fine) {
    drawMap(sharp, atlas.query, header, layer, head, { x: 0, y: 0, w: sharp.width, h: sharp.height });
    drawMarks(sharp, mapFrame(header), { query: header.selection.query, pin: null, hover }, false);
  }
  const amount = hover ? valueAt(header, maps, layer, head, hover) : largest.query[layer][head];
  say(cell.value, hover ? probability(amount) : fill(app.words.head_most, { value: probability(amount) }));
}

/** The colour bar: ticks in probability, a pointer at the hovered value, and what is not on it. */
function legend(app) {
  const { words } = app;
  const strip = element("div", "strip");
  const pointer = element("div", "pointer");
  const labels = Array.from({ length: 5 }, () => element("span", "number"));
  const about = element("p", "quiet about");
  const outside = element("p", "quiet outside");
  const scale = segmented(
    words.scale,
    ["shared", "each", "log"].map((name) => ({
      value: name,
      text: words[`scale_${name}`],
      hint: words[`scale_${name}_hint`],
    })),
    (name) => app.change({ scale: name }),
  );
  const track = element("div", "track", [strip, pointer]);
  const bar = element("div", "bar", [track, element("div", "ticks", labels)]);
  const root = element("div", "legend", [element("div", "legend-top", [bar, scale.root]), about, outside]);

  function draw({ selection, data, hover, largest }) {
    const { header, maps } = data;
    const { layer, head, scale: kind } = selection;
    const top = scaleTop(kind, largest.all, layer, head);
    strip.style.background = `linear-gradient(90deg, ${header.colours.map((rgb) => `rgb(${rgb})`)})`;
    ticks(kind, top).forEach(([, value], index) => say(labels[index], probability(value)));
    const onBar = Array.isArray(hover) && Number.isFinite(largest.query[layer][head]);
    pointer.style.visibility = onBar ? "visible" : "hidden";
    if (onBar) {
      pointer.style.left = `${100 * onScale(kind, valueAt(header, maps, layer, head, hover), top)}%`;
    }
    scale.press(kind);
    say(about, fill(words[`bar_${kind}`], { layer, head }));
    const share = header.facts.share[layer][head].reduce((sum, part) => sum + part, 0);
    const names = header.prefix.length > 1 ? words.tokens_together : queryName(words, header.prefix[0] ?? "");
    const sentence = header.selection.direction === "looks" ? words.outside : words.outside_looked_at;
    say(outside, header.prefix.length ? fill(sentence, { share: percent(share), names }) : "");
  }
  return { root, draw };
}

export function headsView(app) {
  const { words } = app;
  const grid = element("div", "head-grid");
  const bar = legend(app);
  const view = panel("heads", grid, bar.root);
  let cells = [];

  function draw(state) {
    const { header } = state.data;
    const heads = header.shape[1];
    if (cells.length !== heads) {
      cells = Array.from({ length: heads }, (_, head) => headCell(app, head));
      grid.replaceChildren(...cells.map((cell) => cell.root));
      const across = Math.ceil(Math.sqrt(heads));
      grid.style.setProperty("--across", across);
      grid.classList.toggle("many", across > 3);
    }
    const { direction } = header.selection;
    const query = queryName(words, header.selection.query);
    say(view.title, fill(words[`heads_${direction}`], { query, layer: state.selection.layer }));
    cells.forEach((cell, head) => drawCell(app, cell, head, state));
    bar.draw(state);
  }
  return { root: view.root, draw };
}
