// From probabilities to colours. Each set of maps is painted once into an atlas (layers down, heads
// across, one pixel a patch); every view draws from it, so all views show the same colours.

const LOG_RANGE = 1e-4; // a logarithmic scale ends at this fraction of its maximum

/** 256 colours as little-endian RGBA, by straight lines between the control points. */
export function colourTable(points) {
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (points.length - 1);
    const low = Math.min(Math.floor(place), points.length - 2);
    const [red, green, blue] = points[low].map((from, channel) =>
      Math.round(from + (place - low) * (points[low + 1][channel] - from)),
    );
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

/** The largest patch value of each map, [layers][heads]; NaN where a value is no probability. */
export function maxima(maps, header) {
  const [layers, heads, tokens] = header.shape;
  const prefix = header.prefix.length;
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: heads }, (_, head) => {
      const start = (layer * heads + head) * tokens;
      let largest = 0;
      for (let token = 0; token < tokens; token += 1) {
        const value = maps[start + token];
        if (!(value >= 0 && value < Infinity)) return NaN;
        if (token >= prefix && value > largest) largest = value;
      }
      return largest;
    }),
  );
}

/** The scale's upper end for one map, over `sets` of maxima (the query's and the pin's). */
export function scaleTop(kind, sets, layer, head) {
  const values = kind === "each" ? sets.map((set) => set[layer][head]) : sets.flatMap((set) => set[layer]);
  return Math.max(0, ...values.filter(Number.isFinite));
}

/** Where a value lies on the scale, 0 to 1; a flat empty map is dark, not divided by zero. */
export function onScale(kind, value, top) {
  if (!(top > 0) || value <= 0) return 0;
  const share = kind === "log" ? 1 - Math.log(value / top) / Math.log(LOG_RANGE) : value / top;
  return Math.min(Math.max(share, 0), 1);
}

/** Five marks of the colour bar: [place from 0 to 1, value]. */
export function ticks(kind, top) {
  return [0, 0.25, 0.5, 0.75, 1].map((place) => [
    place,
    kind === "log" ? top * LOG_RANGE ** (1 - place) : top * place,
  ]);
}

/** Paints all maps of one set; `top(layer, head)` is the scale's end. Broken maps stay transparent. */
export function paintAtlas(canvas, maps, largest, header, table, kind, top) {
  const [layers, heads, tokens] = header.shape;
  const { rows, columns } = header.grid;
  const width = heads * columns;
  const pixels = new Uint32Array(width * layers * rows);
  for (let layer = 0; layer < layers; layer += 1) {
    for (let head = 0; head < heads; head += 1) {
      if (!Number.isFinite(largest[layer][head])) continue;
      const end = top(layer, head);
      let source = (layer * heads + head) * tokens + header.prefix.length;
      for (let row = 0; row < rows; row += 1) {
        let target = (layer * rows + row) * width + head * columns;
        for (let column = 0; column < columns; column += 1, source += 1, target += 1) {
          pixels[target] = table[Math.round(255 * onScale(kind, maps[source], end))];
        }
      }
    }
  }
  canvas.width = width;
  canvas.height = layers * rows;
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), width, layers * rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
}
