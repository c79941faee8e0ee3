// The formulas of a step with the followed row's numbers filled in.

import { button, element, panel, say } from "../patch_canvas/dom.js";
import { fill } from "../patch_canvas/words.js";
import { asText, stepValues } from "./values.js";

/** The templates of a walk's formulas: {id: [title of the story's step, symbols, with numbers]}. */
function linesOf(words, walk, step) {
  const lines = { ...words.formula[step.phase || walk.implementation] };
  if (walk.most_rise > 0) lines.max = [lines.max[0], ...words.formula_lazy];
  const changes = words.formula_broken[walk.broken]?.[walk.implementation] ?? {};
  for (const [id, change] of Object.entries(changes)) {
    if (id in lines) lines[id] = [lines[id][0], ...change, true];
  }
  return lines;
}

/** "a + −b" as one writes it by hand. */
function signs(text) {
  return text
    .replace(/\+ −(?=[\d∞])/g, "− ")
    .replace(/− −(?=[\d∞])/g, "+ ")
    .replace(/· (−[^ )]+)/g, "· ($1)");
}

export function formulaView(player) {
  const list = element("div", "formulas");
  const which = element("div", "which");
  const view = panel("formula", which, list);

  function draw() {
    const { walk } = player.shown;
    const { words } = player;
    const step = walk.steps[player.step];
    const lines = Object.entries(linesOf(words, walk, step));
    const texts = asText(stepValues(walk, player.step, player.row), player, walk);
    const wanted = lines.map(([id]) => id).join(" ");
    if (list.dataset.ids !== wanted) {
      list.dataset.ids = wanted;
      list.replaceChildren(...lines.map(() => formulaLine(player)));
    }
    lines.forEach(([id, [title, symbols, numbers, changed]], at) => {
      const node = list.children[at];
      node.dataset.id = id;
      node.dataset.title = title;
      node.classList.toggle("changed", Boolean(changed));
      say(node.children[0], symbols);
      say(node.children[1], signs(fill(numbers, texts)));
    });
    light();
  }

  function light() {
    for (const node of list.children) {
      node.setAttribute("aria-pressed", String(node.dataset.title === player.title));
    }
  }

  return {
    root: view.root,
    which,
    tween() {},
    light,
    drawStep() {
      const { words } = player;
      say(view.title, words.formula_title);
      say(view.hint, fill(words.formula_hint, { row: player.rowText }));
      draw();
    },
  };
}

function formulaLine(player) {
  const parts = [element("span", "symbols"), element("span", "filled")];
  const node = button("formula-line", () => player.lightTitle(node.dataset.title), parts);
  return node;
}
