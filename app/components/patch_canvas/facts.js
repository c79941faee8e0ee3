// Measured facts of the open head, and its strongest patches as text.

import { button, element, say } from "./dom.js";
import { valueAt } from "./geometry.js";
import { fill, percent, probability } from "./words.js";

function line(list) {
  const name = element("dt");
  const value = element("dd", "number");
  list.append(element("div", "fact", [name, value]));
  return (text, amount, hint = "") => {
    say(name, text);
    say(value, amount);
    name.parentElement.title = hint;
  };
}

export function factsView(app) {
  const { words } = app;
  const title = element("h4");
  const numbers = element("dl");
  const lines = ["class", "registers", "entropy", "distance"].map(() => line(numbers));
  const listTitle = element("h4");
  const list = element("ol", "strongest");
  const root = element("div", "facts", [
    element("div", "", [title, numbers]),
    element("div", "", [listTitle, list]),
  ]);

  function drawNumbers({ selection, data }) {
    const { header } = data;
    const { layer, head } = selection;
    const { share, entropy, distance } = header.facts;
    const [first, ...registers] = share[layer][head];
    const shareName = words[`share_${header.selection.direction}`];
    const tokens = header.shape[2];
    const bits = entropy[layer][head];
    const patches = distance[layer][head];
    numbers.children[0].hidden = first === undefined;
    lines[0](fill(shareName, { name: header.prefix[0] }), percent(first ?? null));
    numbers.children[1].hidden = registers.length === 0;
    lines[1](
      fill(shareName, { name: words.registers }),
      percent(registers.includes(null) ? null : registers.reduce((sum, part) => sum + part, 0)),
    );
    lines[2](
      words.entropy,
      bits === null ? "–" : fill(words.bits, { value: bits.toFixed(2) }),
      fill(words.entropy_hint, { most: Math.log2(tokens).toFixed(2), tokens }),
    );
    lines[3](
      words.distance,
      patches === null ? words.no_distance : fill(words.patches, { value: patches.toFixed(1) }),
      words.distance_hint,
    );
  }

  function strongestLine(query) {
    const place = element("span", "number place");
    const value = element("span", "number");
    const row = button("strong-patch", () => app.change({ query: query() }), [place, value]);
    for (const start of ["pointerenter", "focus"]) row.addEventListener(start, () => app.hover(query()));
    for (const end of ["pointerleave", "blur"]) row.addEventListener(end, () => app.hover(null));
    return { item: element("li", "", [row]), row, place, value };
  }

  let entries = [];
  let queries = [];
  function drawStrongest({ selection, data }) {
    const { header, maps } = data;
    const { layer, head } = selection;
    const { columns } = header.grid;
    queries = header.facts.strongest[layer][head].map((token) => {
      const patch = token - header.prefix.length;
      return patch < 0 ? header.prefix[token] : [Math.floor(patch / columns), patch % columns];
    });
    if (entries.length !== queries.length) {
      entries = queries.map((_, index) => strongestLine(() => queries[index]));
      list.replaceChildren(...entries.map((entry) => entry.item));
    }
    entries.forEach((entry, index) => {
      const query = queries[index];
      const value = probability(valueAt(header, maps, layer, head, query));
      const [row, column] = query;
      say(entry.place, Array.isArray(query) ? `${row}, ${column}` : query);
      say(entry.value, value);
      entry.row.setAttribute("aria-label", fill(words.strongest_label, { row, column, value }));
    });
  }

  function draw(state) {
    say(title, state.selection.pin === null ? words.facts : words.facts_a);
    say(listTitle, words.strongest);
    drawNumbers(state);
    drawStrongest(state);
    const { layer, head } = state.selection;
    root.classList.toggle("hidden", !Number.isFinite(state.largest.query[layer][head]));
  }
  return { root, draw };
}
