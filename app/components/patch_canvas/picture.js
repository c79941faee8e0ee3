// The picture: hover looks at a patch, a click makes it the query, chips choose tokens without a place.

import { ARROWS, button, element, panel, say, segmented } from "./dom.js";
import { fractions, patchAt, patchBox, pictureAspect, sharpContext, valueAt } from "./geometry.js";
import { drawGrid, drawMarks, drawPhoto, outline } from "./photo.js";
import { fill, probability, queryName } from "./words.js";

const TALLEST_PICTURE = 560; // CSS pixels
const MAGNIFIED = 3; // patches across the magnifier, the looked-at one in the middle

/** Lets a canvas report the patch under the pointer and clicks on it. frame() is the geometry. */
export function watchPatches(canvas, frame, onHover, onClick) {
  const at = (event) => patchAt(frame(), ...fractions(event));
  canvas.addEventListener("pointermove", (event) => onHover(at(event)));
  canvas.addEventListener("pointerleave", () => onHover(null));
  canvas.addEventListener("click", (event) => {
    const patch = at(event);
    if (patch) onClick(patch);
  });
}

/** Fits a canvas of the picture's shape into the panel, without ever stretching it. */
export function fitPicture(canvas, header) {
  const aspect = pictureAspect(header);
  canvas.style.aspectRatio = String(aspect);
  canvas.style.width = `min(100%, ${Math.round(TALLEST_PICTURE * aspect)}px)`;
}

function onKey(app, event) {
  const { selection, data } = app.state;
  const { rows, columns } = data.header.grid;
  const step = ARROWS[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (step) {
    const from = Array.isArray(selection.query)
      ? [selection.query[0] + step[0], selection.query[1] + step[1]]
      : [Math.floor(rows / 2), Math.floor(columns / 2)];
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    app.hover(null);
    app.change({ query: [clamp(from[0], rows), clamp(from[1], columns)] });
  } else if (event.key === "p" || event.key === "P") {
    app.change({ pin: selection.query });
  } else if (event.key === "Escape" && selection.pin !== null) {
    app.change({ pin: null });
  } else {
    return;
  }
  event.preventDefault();
}

/** The enlarged patch with its neighbours; empty for a token, which has no place. */
function drawMagnifier(canvas, bitmap, header, place) {
  const sharp = sharpContext(canvas);
  const { context, width, height } = sharp;
  if (!bitmap) return;
  if (!Array.isArray(place)) {
    // A token without a place stands for the whole picture.
    const zoom = Math.min(width / bitmap.width, height / bitmap.height);
    const [w, h] = [zoom * bitmap.width, zoom * bitmap.height];
    context.drawImage(bitmap, (width - w) / 2, (height - h) / 2, w, h);
    return;
  }
  const box = patchBox(header, place[0], place[1], bitmap.width, bitmap.height);
  const margin = (MAGNIFIED - 1) / 2;
  context.drawImage(
    bitmap,
    ...[box.x - margin * box.w, box.y - margin * box.h, MAGNIFIED * box.w, MAGNIFIED * box.h],
    ...[0, 0, width, height],
  );
  const w = width / MAGNIFIED;
  const h = height / MAGNIFIED;
  outline(sharp, { x: margin * w, y: margin * h, w, h }, "hover");
}

export function pictureView(app) {
  const { words } = app;
  const canvas = element("canvas", "patches", [], { tabindex: "0", role: "application" });
  const magnifier = element("canvas", "magnifier", [], { "aria-hidden": "true" });
  const place = element("strong");
  const value = element("span");
  const query = element("span", "quiet");
  const spoken = element("span", "spoken", [], { "aria-live": "polite" });
  const readout = element("div", "readout", [
    magnifier,
    element("div", "readout-text", [place, value, query]),
  ]);
  const chips = element("div", "chips", [], { role: "group", "aria-label": words.tokens });
  const pin = button("pill", () => {
    const { selection } = app.state;
    app.change({ pin: selection.pin === null ? selection.query : null });
  });
  const direction = segmented(
    words.direction,
    ["looks", "looked_at"].map((name) => ({ value: name, text: words[name] })),
    (name) => app.change({ direction: name }),
  );
  const controls = element("div", "controls", [chips, direction.root, pin]);
  const view = panel("picture", canvas, readout, controls, spoken);
  say(view.title, words.picture);
  say(view.hint, words.picture_hint);
  watchPatches(canvas, () => app.state.data.header, app.hover, (patch) => app.change({ query: patch }));
  canvas.addEventListener("keydown", (event) => onKey(app, event));

  function drawChips(header, selection) {
    if (chips.childElementCount !== header.prefix.length) {
      chips.replaceChildren(
        ...header.prefix.map((name) => {
          const chip = button("pill", () => app.change({ query: name }));
          chip.dataset.token = name;
          chip.addEventListener("pointerenter", () => app.hover(name));
          chip.addEventListener("pointerleave", () => app.hover(null));
          return chip;
        }),
      );
    }
    header.prefix.forEach((name, index) => {
      say(chips.children[index], name);
      chips.children[index].setAttribute("aria-pressed", String(selection.query === name));
    });
  }

  function drawReadout({ selection, data, hover, bitmap }) {
    const { header, maps } = data;
    const shown = hover ?? selection.query;
    drawMagnifier(magnifier, bitmap, header, shown);
    const amount = valueAt(header, maps, selection.layer, selection.head, shown);
    const [row, column] = shown;
    const isPatch = Array.isArray(shown);
    say(place, isPatch ? fill(words.hover_place, { row, column }) : queryName(words, shown));
    say(
      value,
      fill(words[`hover_${header.selection.direction}`], {
        value: probability(amount),
        head: selection.head,
      }),
    );
    say(query, fill(words.query_is, { query: queryName(words, selection.query) }));
  }

  function draw(state) {
    const { selection, data, hover, bitmap } = state;
    const { header } = data;
    fitPicture(canvas, header);
    canvas.dataset.rows = header.grid.rows;
    canvas.dataset.columns = header.grid.columns;
    canvas.setAttribute("aria-label", fill(words.picture_label, header.grid));
    const sharp = sharpContext(canvas);
    drawPhoto(sharp, bitmap, header);
    drawGrid(sharp, header);
    drawMarks(sharp, header, { query: selection.query, pin: selection.pin, hover });
    drawReadout(state);
    drawChips(header, selection);
    direction.press(selection.direction);
    say(pin, selection.pin === null ? words.pin : words.unpin);
    pin.title = selection.pin === null ? words.pin_hint : words.unpin_hint;
    pin.dataset.action = selection.pin === null ? "pin" : "unpin";
    const [row, column] = selection.query;
    say(
      spoken,
      Array.isArray(selection.query)
        ? fill(words.spoken, { row, column })
        : fill(words.spoken_token, { name: selection.query }),
    );
  }

  return { root: view.root, draw };
}
