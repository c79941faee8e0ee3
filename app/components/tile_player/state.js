// The followed row: which one it is, and its numbers at this step, beside those of a broken walk.

import { element, panel, say } from "../patch_canvas/dom.js";
import { fill } from "../patch_canvas/words.js";
import { figure, tokenText } from "./numbers.js";
import { stepValues } from "./values.js";

export function stateView(player) {
  const head = element("tr");
  const body = element("tbody");
  const caption = element("caption", "spoken");
  const table = element("table", "state", [caption, element("thead", "", [head]), body]);
  const follow = element("select");
  const label = element("label", "follow", [element("span"), follow]);
  const view = panel("numbers", label, table);
  follow.addEventListener("change", () => player.follow(Number(follow.value)));
  let options = "";

  function offer() {
    const { header, walk } = player.data;
    if (options !== header.walk_id) {
      options = header.walk_id;
      follow.replaceChildren(...Array.from({ length: walk.rows }, (_, row) => {
        const token = walk.query_start + row;
        const text = fill(player.words.row_option, { token, place: tokenText(player.words, header, token) });
        return element("option", "", [text], { value: row });
      }));
    }
    follow.value = String(player.row);
  }

  return {
    root: view.root,
    tween() {},
    drawStep() {
      const { walk, broken } = player.data;
      const { words } = player;
      offer();
      say(view.title, words.state);
      say(label.firstChild, words.follow);
      say(caption, words.state);
      const walks = broken ? [walk, broken] : [walk];
      const values = walks.map((one) => stepValues(one, player.step, player.row));
      const heads = broken ? ["", words.right, words.broken] : ["", words.value];
      if (head.children.length !== heads.length) {
        head.replaceChildren(...heads.map((text) => element("th", "", [text], { scope: "col" })));
      }
      const step = walk.steps[player.step];
      const rows = Object.entries(words.state_rows[step.phase || walk.implementation]);
      const wanted = `${walks.length} ${rows.map(([name]) => name)}`;
      if (body.dataset.rows !== wanted) {
        body.dataset.rows = wanted;
        body.replaceChildren(...rows.map(([name, text]) => stateRow(name, text, walks.length)));
      }
      rows.forEach(([name], at) => fillRow(body.children[at], values.map((one) => one[name])));
    },
  };
}

function stateRow(name, text, columns) {
  const cells = Array.from({ length: columns }, () => element("td", "number"));
  return element("tr", "", [element("th", "", [text], { scope: "row" }), ...cells], { "data-name": name });
}

function fillRow(row, values) {
  const [, ...cells] = row.children;
  cells.forEach((cell, at) => {
    cell.dataset.value = values[at];
    say(cell, figure(values[at]));
  });
  row.classList.toggle("differs", cells.length > 1 && cells[0].textContent !== cells[1].textContent);
}
