// Where things lie: one linear map between the screen, the upright picture and the patch grid.

/** The box of patch (row, column) on a drawing `width` x `height` of the whole picture. */
export function patchBox(header, row, column, width, height) {
  const { rows, columns, box } = header.grid;
  const [left, top, right, bottom] = box;
  const scaleX = width / header.size[0];
  const scaleY = height / header.size[1];
  const w = ((right - left) / columns) * scaleX;
  const h = ((bottom - top) / rows) * scaleY;
  return { x: left * scaleX + column * w, y: top * scaleY + row * h, w, h };
}

/** The patch under fractions (0 to 1) of the whole picture, or null outside the grid. */
export function patchAt(header, fractionX, fractionY) {
  const { rows, columns, box } = header.grid;
  const [left, top, right, bottom] = box;
  const row = Math.floor(((fractionY * header.size[1] - top) / (bottom - top)) * rows);
  const column = Math.floor(((fractionX * header.size[0] - left) / (right - left)) * columns);
  return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
}

/** Where a pointer event lies in its canvas, as fractions of its width and height. */
export function fractions(event) {
  const frame = event.currentTarget.getBoundingClientRect();
  return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
}

/** Gives a canvas one pixel a device pixel and returns its context, ready to draw. */
export function sharpContext(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  return { context, width, height, ratio };
}

/** Width over height of the whole picture, and of the grid's box alone. */
export function pictureAspect(header) {
  return header.size[0] / header.size[1];
}
export function gridAspect(header) {
  const [left, top, right, bottom] = header.grid.box;
  return (right - left) / (bottom - top);
}

/** True for two queries that name the same token. */
export function sameQuery(a, b) {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** The place of a query's value among the tokens of one map. */
export function tokenOf(header, query) {
  if (typeof query === "string") return header.prefix.indexOf(query);
  return header.prefix.length + query[0] * header.grid.columns + query[1];
}

/** The value that one head's map holds for a patch or token. */
export function valueAt(header, maps, layer, head, query) {
  const [, heads, tokens] = header.shape;
  return maps[(layer * heads + head) * tokens + tokenOf(header, query)];
}
