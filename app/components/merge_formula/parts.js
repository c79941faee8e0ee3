// The parts of the page: sliders, formulas with numbers in them, the table. Text by textContent only.

import { digits, filled, score } from "./write.js";

export function node(tag, className = "", children = [], attributes = {}) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** One block: its name and three sliders. `onInput(place, value)` is told of each move. */
export function blockView(words, range, name, onInput) {
  const sliders = [0, 1, 2].map((place) => {
    const label = `${name}${"₁₂₃"[place]}`;
    const input = node("input", "", [], { type: "range", ...range, "aria-label": label });
    const value = node("output");
    input.addEventListener("input", () => onInput(place, Number(input.value)));
    return { input, value, row: node("label", "slider", [node("span", "name", [label]), input, value]) };
  });
  const title = node("h4", "", [filled(words.block, { name })]);
  const root = node("section", "block", [title, ...sliders.map((slider) => slider.row)]);
  const draw = (scores) => {
    sliders.forEach(({ input, value }, i) => {
      if (Number(input.value) !== scores[i]) input.value = scores[i];
      input.setAttribute("aria-valuetext", score(scores[i]));
      value.textContent = score(scores[i]);
    });
  };
  return { root, draw };
}

/** Lines of a formula: what it is called, and the same with the numbers in it. */
export function formulaView(count) {
  const lines = Array.from({ length: count }, () => ({ name: node("dt"), body: node("dd") }));
  const root = node("dl", "formulas", lines.flatMap(({ name, body }) => [name, body]));
  const draw = (texts) => {
    texts.forEach(([name, body], i) => {
      lines[i].name.textContent = name;
      lines[i].body.replaceChildren(...raised(body));
    });
  };
  return { root, draw };
}

/** A text with what stands in e^(...) raised. */
function raised(text) {
  const parts = text.split(/\^\(([^)]*)\)/);
  return parts.map((part, i) => (i % 2 === 1 ? node("sup", "", [part]) : part));
}

/** Six scores and what each way makes of them. columns: [{key, title}] */
export function tableView(words, columns) {
  const heads = [words.score, ...columns.map(({ title }) => title)];
  const top = node("tr", "", heads.map((text) => node("th", "", [text], { scope: "col" })));
  const rows = [0, 1, 2, 3, 4, 5].map((i) => {
    const name = `${i < 3 ? "x" : "y"}${"₁₂₃"[i % 3]}`;
    const value = node("span", "number");
    const cells = columns.map(({ key }) => {
      const bar = node("span", `bar ${key}`, [], { "aria-hidden": "true" });
      const number = node("span", "number");
      return { bar, number, cell: node("td", key, [number, bar]) };
    });
    const first = node("th", "", [node("span", "name", [name]), " ", value], { scope: "row" });
    return { value, cells, row: node("tr", "", [first, ...cells.map(({ cell }) => cell)]) };
  });
  const caption = node("caption", "spoken", [words.table]);
  const body = node("tbody", "", rows.map(({ row }) => row));
  const root = node("table", "results", [caption, node("thead", "", [top]), body]);
  const draw = (scores, results) => {
    rows.forEach(({ value, cells }, i) => {
      value.textContent = score(scores[i]);
      cells.forEach(({ bar, number }, column) => {
        const share = results[column][i];
        number.textContent = digits(share);
        bar.style.setProperty("--share", share);
      });
    });
  };
  return { root, draw };
}
