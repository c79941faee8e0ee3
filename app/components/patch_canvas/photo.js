// Draws the picture and what lies on it: shade outside the crop, patch grid, outlines of patches.

import { patchBox, sameQuery } from "./geometry.js";

const GRID_LINES_FROM = 6; // CSS pixels a patch; a finer grid would veil the picture
const SMALL_PATCH = 8; // CSS pixels; a mark on a smaller patch stands around its neighbours
const SMALLEST_MARK = 9; // CSS pixels, so that a mark on the tiniest patch can still be seen

const decoded = new Map(); // digest -> ImageBitmap, the last few pictures of this page

/** Hands the decoded picture to `ready`, at once if it was seen before. */
export function loadPicture(digest, bytes, ready, failed) {
  if (decoded.has(digest)) {
    ready(decoded.get(digest));
    return;
  }
  createImageBitmap(new Blob([bytes], { type: "image/jpeg" })).then((bitmap) => {
    decoded.set(digest, bitmap);
    if (decoded.size > 4) decoded.delete(decoded.keys().next().value);
    ready(bitmap);
  }, failed);
}

/** The picture, dimmed where the crop leaves it out, with the crop's edge drawn. */
export function drawPhoto({ context, width, height, ratio }, bitmap, header) {
  if (bitmap) context.drawImage(bitmap, 0, 0, width, height);
  const [left, top, right, bottom] = header.grid.box;
  const [fullWidth, fullHeight] = header.size;
  if (left <= 0 && top <= 0 && right >= fullWidth && bottom >= fullHeight) return;
  const x = (left / fullWidth) * width;
  const y = (top / fullHeight) * height;
  const w = ((right - left) / fullWidth) * width;
  const h = ((bottom - top) / fullHeight) * height;
  context.fillStyle = "rgba(16, 14, 24, 0.72)";
  context.beginPath();
  context.rect(0, 0, width, height);
  context.rect(x, y, w, h);
  context.fill("evenodd");
  outline({ context, ratio }, { x, y, w, h }, "crop");
}

/** Thin lines between patches, left out where patches are too small to be told apart. */
export function drawGrid({ context, width, height, ratio }, header) {
  const { rows, columns } = header.grid;
  const first = patchBox(header, 0, 0, width, height);
  if (Math.min(first.w, first.h) < GRID_LINES_FROM * ratio) return;
  context.beginPath();
  for (let column = 0; column <= columns; column += 1) {
    const x = Math.round(first.x + column * first.w) + 0.5;
    context.moveTo(x, first.y);
    context.lineTo(x, first.y + rows * first.h);
  }
  for (let row = 0; row <= rows; row += 1) {
    const y = Math.round(first.y + row * first.h) + 0.5;
    context.moveTo(first.x, y);
    context.lineTo(first.x + columns * first.w, y);
  }
  context.lineWidth = 1;
  context.strokeStyle = "rgba(255, 255, 255, 0.14)";
  context.stroke();
}

const THIN = 1.25; // CSS pixels
const STYLES = {
  hover: { width: THIN, dash: [], colour: "#fff" },
  query: { width: 2.25, dash: [], colour: "#fff" },
  pin: { width: 2.25, dash: [3, 2.5], colour: "#fff" },
  crop: { width: THIN, dash: [], colour: "#fff" },
};

/** A white line between two dark ones: seen on any picture and on any colour of the scale. */
export function outline({ context, ratio }, box, kind, letter = "") {
  const style = STYLES[kind];
  const isSmall = Math.min(box.w, box.h) < SMALL_PATCH * ratio;
  const around = (side) => Math.max(3 * side, SMALLEST_MARK * ratio);
  const w = isSmall ? around(box.w) : box.w;
  const h = isSmall ? around(box.h) : box.h;
  const x = box.x + box.w / 2 - w / 2;
  const y = box.y + box.h / 2 - h / 2;
  context.save();
  context.lineJoin = "round";
  context.strokeStyle = "rgba(12, 10, 20, 0.9)";
  const lineWidth = isSmall ? THIN : style.width;
  context.lineWidth = (lineWidth + 2) * ratio;
  context.strokeRect(x, y, w, h);
  context.setLineDash(style.dash.map((part) => part * ratio));
  context.strokeStyle = style.colour;
  context.lineWidth = lineWidth * ratio;
  context.strokeRect(x, y, w, h);
  context.restore();
  if (letter) drawLetter({ context, ratio }, x + w, y, letter);
}

/** A letter on a small dark disc, at the corner of a mark. */
function drawLetter({ context, ratio }, x, y, letter) {
  const radius = 7.5 * ratio;
  const centreX = Math.min(x + radius * 0.7, context.canvas.width - radius);
  const centreY = Math.max(y - radius * 0.7, radius);
  context.save();
  context.fillStyle = "rgba(12, 10, 20, 0.92)";
  context.beginPath();
  context.arc(centreX, centreY, radius, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = "#fff";
  context.font = `600 ${10 * ratio}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(letter, centreX, centreY + 0.5 * ratio);
  context.restore();
}

/** All marks that a view of patches carries: pin, query and the patch under the pointer. */
export function drawMarks(sharp, frame, { query, pin, hover }, letters = true) {
  const mark = (place, kind, letter) => {
    if (!Array.isArray(place)) return;
    const box = patchBox(frame, place[0], place[1], sharp.width, sharp.height);
    outline(sharp, box, kind, letters ? letter : "");
  };
  mark(pin, "pin", "B");
  mark(query, "query", pin ? "A" : "");
  if (!sameQuery(hover, query)) mark(hover, "hover", ""); // the query keeps its stronger line
}
