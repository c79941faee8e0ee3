// Canvases that are drawn at every step: their size is asked for only after the layout has changed, because
// asking in the middle of a step's changes makes the browser lay the page out again each time.

import { sharpContext } from "../patch_canvas/geometry.js";

const sizedFor = new WeakMap();

/** As `sharpContext`; `layout` is anything that differs when the canvas may have another size. */
export function steadyContext(canvas, layout) {
  if (sizedFor.get(canvas) !== layout) {
    sizedFor.set(canvas, layout);
    return sharpContext(canvas);
  }
  const { width, height } = canvas;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio: window.devicePixelRatio || 1 };
}
