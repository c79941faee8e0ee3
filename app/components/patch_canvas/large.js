// The open head over the picture; with a pin, two maps side by side on one scale.

import { element, panel, say } from "./dom.js";
import { factsView } from "./facts.js";
import { patchBox, sharpContext } from "./geometry.js";
import { drawMap } from "./heads.js";
import { drawMarks, drawPhoto } from "./photo.js";
import { fitPicture, watchPatches } from "./picture.js";
import { fill, queryName } from "./words.js";

function overlay(app, name) {
  const canvas = element("canvas", "patches overlay", [], { role: "img" });
  canvas.dataset.map = name;
  const caption = element("figcaption");
  const broken = element("span", "broken");
  const root = element("figure", "", [caption, element("span", "frame", [canvas, broken])]);
  watchPatches(canvas, () => app.state.data.header, app.hover, (patch) => app.change({ query: patch }));
  return { root, canvas, caption, broken };
}

/** One map over the picture. map: {atlas, largest, query} */
function drawOverlay(app, part, state, map, caption) {
  const { selection, data, bitmap, hover } = state;
  const { header } = data;
  const { layer, head } = selection;
  const fine = Number.isFinite(map.largest[layer][head]);
  fitPicture(part.canvas, header);
  say(part.caption, caption);
  say(part.broken, fine ? "" : app.words.not_a_map);
  part.canvas.setAttribute("aria-label", `${fill(app.words.place, selection)}. ${caption}`);
  const sharp = sharpContext(part.canvas);
  drawPhoto(sharp, bitmap, header);
  if (fine) {
    const { rows, columns } = header.grid;
    const first = patchBox(header, 0, 0, sharp.width, sharp.height);
    const box = { x: first.x, y: first.y, w: first.w * columns, h: first.h * rows };
    sharp.context.globalAlpha = selection.opacity;
    drawMap(sharp, map.atlas, header, layer, head, box);
    sharp.context.globalAlpha = 1;
  }
  drawMarks(sharp, header, { query: map.query, pin: null, hover });
}

function opacitySlider(app) {
  const input = element("input", "", [], { type: "range", min: "0", max: "100", step: "1" });
  const value = element("output", "number");
  input.addEventListener("input", () => app.change({ opacity: input.valueAsNumber / 100 }, false));
  input.addEventListener("change", () => app.change({ opacity: input.valueAsNumber / 100 }));
  const root = element("label", "opacity", [element("span"), input, value]);
  const draw = (opacity) => {
    const hundredths = Math.round(100 * opacity);
    say(root.firstChild, app.words.opacity);
    if (input.valueAsNumber !== hundredths) input.value = String(hundredths);
    say(value, `${hundredths} %`);
  };
  return { root, draw };
}

export function largeView(app) {
  const { words } = app;
  const a = overlay(app, "a");
  const b = overlay(app, "b");
  const waiting = element("p", "quiet");
  const maps = element("div", "overlays", [a.root, b.root]);
  const opacity = opacitySlider(app);
  const facts = factsView(app);
  const view = panel(
    "large",
    element("div", "large-body", [element("div", "large-maps", [maps, waiting, opacity.root]), facts.root]),
  );

  function draw(state) {
    const { selection, data, atlas, largest } = state;
    const { header } = data;
    const comparing = selection.pin !== null && data.pinned !== null;
    view.root.classList.toggle("comparing", comparing);
    b.root.hidden = !comparing;
    say(view.title, fill(words.large, selection));
    say(view.hint, words.large_hint);
    say(waiting, selection.pin !== null && !comparing ? words.waiting_pin : "");
    const { query, pin } = header.selection;
    const template = comparing ? words.map_a : words[`one_${header.selection.direction}`];
    const caption = fill(template, { query: queryName(words, query) });
    drawOverlay(app, a, state, { atlas: atlas.query, largest: largest.query, query }, caption);
    if (comparing) {
      const about = { atlas: atlas.pin, largest: largest.pin, query: pin };
      drawOverlay(app, b, state, about, fill(words.map_b, { query: queryName(words, pin) }));
    }
    opacity.draw(selection.opacity);
    facts.draw(state);
  }
  return { root: view.root, draw };
}
