// The followed row as a map: over the keys seen so far, at the end, and with the step broken.

import { element, panel, say } from "../patch_canvas/dom.js";
import { gridAspect } from "../patch_canvas/geometry.js";
import { fill } from "../patch_canvas/words.js";
import { figure, fromJson } from "./numbers.js";
import { mapSoFar, outputSoFar, relativeError } from "./walk.js";

export function mapsView(player) {
  const far = mapFigure("map-far");
  const end = mapFigure("map-end");
  const wrong = mapFigure("map-wrong");
  const error = errorBar();
  const scale = element("div", "strip");
  const top = element("span");
  const bar = element("div", "scale", [element("span", "", ["0"]), scale, top]);
  const outputs = element("canvas", "outputs", [], { role: "img" });
  const outputNote = element("p", "quiet");
  const maps = element("div", "map-row", [far.root, wrong.root, end.root]);
  const view = panel("maps", maps, bar, error.root, outputs, outputNote);
  let known = { id: "", row: -1 };

  /** The last map and its top, made once a row. */
  function final() {
    const { walk, header } = player.data;
    if (known.id !== header.walk_id || known.row !== player.row) {
      const map = mapSoFar(walk, walk.last, player.row);
      let most = 0;
      for (let at = header.prefix.length; at < map.length; at += 1) if (map[at] > most) most = map[at];
      known = { id: header.walk_id, row: player.row, map, most };
    }
    return known;
  }

  return {
    root: view.root,
    tween() {},
    drawStep() {
      const { header, walk, broken } = player.data;
      const { words } = player;
      const { map, most } = final();
      say(view.title, words.maps);
      say(view.hint, player.rowText);
      const soFar = mapSoFar(walk, player.step, player.row);
      drawMap(far, soFar, most, header, player, words.map_far);
      drawMap(end, map, most, header, player, words.map_end);
      wrong.root.hidden = !broken;
      if (broken) {
        const weights = mapSoFar(broken, player.step, player.row);
        drawMap(wrong, weights, most, header, player, words.map_wrong);
      }
      scale.style.background = `linear-gradient(to right, ${player.probabilityStops})`;
      say(top, figure(most, 3));
      const right = outputSoFar(walk, player.step, player.row);
      const bad = broken && outputSoFar(broken, player.step, player.row);
      error.draw(player, right, bad);
      drawOutputs(outputs, player, right, bad);
      say(outputNote, right ? words.outputs : words.outputs_none);
      outputs.setAttribute("aria-label", words.outputs_label);
    },
  };
}

function mapFigure(name) {
  const canvas = element("canvas", `map ${name}`, [], { role: "img" });
  const caption = element("figcaption");
  const sum = element("span", "quiet");
  return { root: element("figure", "", [caption, canvas, sum]), canvas, caption, sum };
}

function drawMap({ canvas, caption, sum }, map, most, header, player, title) {
  const { rows, columns } = header.grid;
  const { words, table, ink } = player;
  const pixels = new Uint32Array(rows * columns);
  const prefix = header.prefix.length;
  for (let at = 0; at < pixels.length; at += 1) {
    const value = map[prefix + at];
    if (Number.isNaN(value)) pixels[at] = ink.hollowPixel;
    else pixels[at] = table[Math.round(255 * Math.min(1, Math.max(0, value / most || 0)))];
  }
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.aspectRatio = String(gridAspect(header));
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows);
  canvas.getContext("2d").putImageData(image, 0, 0);
  let total = 0;
  let seen = 0;
  for (const value of map) {
    if (Number.isNaN(value)) continue;
    total += value;
    seen += 1;
  }
  const outside = header.prefix.map((name, at) => (
    Number.isNaN(map[at]) ? "" : fill(words.outside, { name, value: figure(map[at], 3) })
  ));
  say(caption, title);
  const line = seen ? fill(words.map_sum, { sum: figure(total), seen }) : words.map_empty;
  say(sum, [line, ...outside].filter(Boolean).join(" "));
  canvas.setAttribute("aria-label", `${title}. ${sum.textContent}`);
}

function errorBar() {
  const text = element("p");
  const fillNode = element("i");
  const track = element("div", "error-track", [fillNode], { "aria-hidden": "true" });
  const note = element("p", "quiet");
  const root = element("div", "error-bar", [text, track, note]);
  return {
    root,
    draw(player, right, bad) {
      const { walk, broken, header } = player.data;
      const { words } = player;
      const tag = words.tags[header.tags.error];
      if (!broken) {
        track.hidden = true;
        say(text, fill(words.error_right, { error: figure(fromJson(walk.largest_error), 2), tag }));
        say(note, "");
        return;
      }
      const share = right && bad ? relativeError(right, bad) : 0;
      const value = Number.isNaN(share) ? words.not_a_number : `${figure(100 * share, 3)} %`;
      track.hidden = false;
      fillNode.style.width = `${Number.isNaN(share) ? 100 : Math.min(100, 100 * share)}%`;
      root.dataset.share = String(share);
      say(text, fill(words.error_now, { error: value }));
      const errors = {
        broken: figure(fromJson(broken.largest_error), 3),
        right: figure(fromJson(walk.largest_error), 2),
        tag,
      };
      say(note, fill(words.error_end, errors));
    },
  };
}

/** One line a vector of the row's output: so far, broken, at the end; signed colours, one scale. */
function drawOutputs(canvas, player, right, bad) {
  const { walk } = player.data;
  const lines = [right, ...(player.data.broken ? [bad] : []), outputSoFar(walk, walk.last, player.row)];
  let reach = 0;
  for (const value of lines.at(-1)) reach = Math.max(reach, Math.abs(value) || 0);
  const pixels = new Uint32Array(walk.head_dim * lines.length);
  lines.forEach((line, down) => {
    for (let at = 0; at < walk.head_dim; at += 1) {
      const share = line ? Math.min(Math.max(0.5 + (0.5 * line[at]) / (reach || 1), 0), 1) : NaN;
      pixels[down * walk.head_dim + at] = Number.isNaN(share)
        ? player.ink.hollowPixel
        : player.signedTable[Math.round(255 * share)];
    }
  });
  canvas.width = walk.head_dim;
  canvas.height = lines.length;
  canvas.style.height = `${14 * lines.length}px`;
  const image = new ImageData(new Uint8ClampedArray(pixels.buffer), walk.head_dim, lines.length);
  canvas.getContext("2d").putImageData(image, 0, 0);
}
