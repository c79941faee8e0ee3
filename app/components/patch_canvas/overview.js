// Every layer (down) and every head (across) as tiny maps; the open one is framed.

import { ARROWS, element, panel, say } from "./dom.js";
import { gridAspect, sharpContext } from "./geometry.js";
import { drawMap } from "./heads.js";
import { outline } from "./photo.js";
import { fill } from "./words.js";

const TALLEST_OVERVIEW = 620; // CSS pixels for all rows together
const GAP = 3; // CSS pixels between maps
const MARGIN = 22; // CSS pixels for the numbers at the left and at the top

/** Sizes in device pixels; from two pixels a patch on, every patch gets the same whole number. */
function measure(header, available, ratio) {
  const [layers, heads] = header.shape;
  const { rows, columns } = header.grid;
  const widest = (available - MARGIN) / heads - GAP;
  const highest = TALLEST_OVERVIEW / layers - GAP;
  const width = Math.min(widest, highest * gridAspect(header)) * ratio;
  const whole = Math.floor(width / columns);
  const even = whole >= 2;
  const w = even ? whole * columns : Math.max(4, Math.floor(width));
  const h = even ? whole * rows : Math.max(2, Math.round(w / gridAspect(header)));
  const gap = Math.round(GAP * ratio);
  const margin = Math.round(MARGIN * ratio);
  return { w, h, gap, margin, width: margin + heads * (w + gap), height: margin + layers * (h + gap) };
}

function cellBox(size, layer, head) {
  return {
    x: size.margin + head * (size.w + size.gap),
    y: size.margin + layer * (size.h + size.gap),
    w: size.w,
    h: size.h,
  };
}

/** The numbers of heads and layers at the edges, the chosen ones in full strength. */
function drawNumbers({ context, ratio }, canvas, header, size, selection) {
  const [layers, heads] = header.shape;
  context.fillStyle = getComputedStyle(canvas).color;
  context.textBaseline = "middle";
  const write = (text, x, y, chosen) => {
    context.font = `${chosen ? 700 : 400} ${11 * ratio}px ${getComputedStyle(canvas).fontFamily}`;
    context.globalAlpha = chosen ? 1 : 0.76;
    context.fillText(text, x, y);
  };
  context.textAlign = "right";
  for (let layer = 0; layer < layers; layer += 1) {
    const { y, h } = cellBox(size, layer, 0);
    write(layer, size.margin - 6 * ratio, y + h / 2, layer === selection.layer);
  }
  context.textAlign = "center";
  for (let head = 0; head < heads; head += 1) {
    const { x, w } = cellBox(size, 0, head);
    write(head, x + w / 2, size.margin / 2, head === selection.head);
  }
  context.globalAlpha = 1;
}

/** A grey cross where a map is broken: it has no colour to show. */
function drawBroken({ context, ratio }, canvas, box) {
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = ratio;
  context.beginPath();
  context.rect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1);
  context.moveTo(box.x, box.y);
  context.lineTo(box.x + box.w, box.y + box.h);
  context.moveTo(box.x + box.w, box.y);
  context.lineTo(box.x, box.y + box.h);
  context.stroke();
}

export function overviewView(app) {
  const { words } = app;
  const canvas = element("canvas", "overview-map", [], { tabindex: "0", role: "application" });
  const frame = element("div", "overview-frame", [canvas]);
  const view = panel("overview", frame);
  let size = null;
  let hovered = null;

  const at = (event) => {
    const bounds = canvas.getBoundingClientRect();
    const ratio = canvas.width / bounds.width;
    const x = (event.clientX - bounds.left) * ratio - size.margin;
    const y = (event.clientY - bounds.top) * ratio - size.margin;
    const head = Math.floor(x / (size.w + size.gap));
    const layer = Math.floor(y / (size.h + size.gap));
    const [layers, heads] = app.state.data.header.shape;
    return head >= 0 && layer >= 0 && head < heads && layer < layers ? { layer, head } : null;
  };
  const hover = (cell) => {
    hovered = cell;
    app.invalidate();
  };
  canvas.addEventListener("pointermove", (event) => hover(at(event)));
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("click", (event) => {
    const cell = at(event);
    if (cell) app.change(cell);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const [layers, heads] = app.state.data.header.shape;
    const { layer, head } = app.state.selection;
    app.change({
      layer: Math.min(Math.max(layer + step[0], 0), layers - 1),
      head: Math.min(Math.max(head + step[1], 0), heads - 1),
    });
  });

  function draw({ selection, data, atlas, largest }) {
    const { header } = data;
    const [layers, heads] = header.shape;
    const ratio = window.devicePixelRatio || 1;
    size = measure(header, app.overviewWidth(), ratio);
    canvas.style.width = `${size.width / ratio}px`;
    canvas.style.height = `${size.height / ratio}px`;
    const { w: cellWidth, h: cellHeight, margin, gap } = size;
    Object.assign(canvas.dataset, { cellWidth, cellHeight, margin, gap });
    canvas.setAttribute("aria-label", fill(words.overview_label, { layers, heads, ...selection }));
    say(view.title, words.overview);
    say(view.hint, hovered ? fill(words.place, hovered) : words.overview_hint);
    const sharp = sharpContext(canvas);
    for (let layer = 0; layer < layers; layer += 1) {
      for (let head = 0; head < heads; head += 1) {
        const box = cellBox(size, layer, head);
        if (Number.isFinite(largest.query[layer][head])) drawMap(sharp, atlas.query, header, layer, head, box);
        else drawBroken(sharp, canvas, box);
      }
    }
    drawNumbers(sharp, canvas, header, size, selection);
    if (hovered) outline(sharp, cellBox(size, hovered.layer, hovered.head), "hover");
    outline(sharp, cellBox(size, selection.layer, selection.head), "query");
  }
  return { root: view.root, draw };
}
