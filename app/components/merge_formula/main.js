// Two blocks of three scores: move one, and see the merge, the softmax of all six, and the wrong formula.

import { circulating, farthest, merge, softmax } from "./numbers.js";
import { blockView, formulaView, node, tableView } from "./parts.js";
import { digits, filled, power, score } from "./write.js";

const SPOKEN_AFTER_MS = 600; // a screen reader is told when the slider rests
const ROUNDING = 1e-12; // what is nearer than this is the same
const placed = new WeakMap();

class MergeFormula {
  constructor(parent, { words, range, start, presets }) {
    this.words = words;
    this.scores = start;
    this.blocks = ["x", "y"].map((name, block) =>
      blockView(words, range, name, (place, value) => this.move(block, place, value)),
    );
    this.columns = ["all", "merged", "wrong"].map((key) => ({ key, title: words[key] }));
    this.table = tableView(words, this.columns);
    this.formulas = formulaView(6);
    this.verdicts = [node("p", "verdict right"), node("p", "verdict wrong")];
    this.spoken = node("p", "spoken", [], { role: "status" });
    const choices = presets.map(({ title, scores }) => {
      const press = node("button", "preset", [title], { type: "button" });
      press.addEventListener("click", () => this.show(scores));
      return press;
    });
    this.root = node("div", "merge-formula", [
      node("div", "blocks", this.blocks.map(({ root }) => root)),
      node("div", "presets", choices, { role: "group", "aria-label": words.presets }),
      this.formulas.root,
      this.table.root,
      ...this.verdicts,
      this.spoken,
    ]);
    parent.append(this.root);
    this.show(start);
  }

  move(block, place, value) {
    const scores = this.scores.map((old) => [...old]);
    scores[block][place] = value;
    this.show(scores);
  }

  show(scores) {
    this.scores = scores;
    const [x, y] = scores;
    const merged = merge(x, y);
    const all = softmax([...x, ...y]);
    const wrong = circulating(x, y);
    this.blocks.forEach((block, i) => block.draw(scores[i]));
    this.formulas.draw(this.lines(scores, merged));
    this.table.draw([...x, ...y], [all, merged.weights, wrong]);
    const errors = [farthest(merged.weights, all), farthest(wrong, all)];
    const keys = ["right", errors[1] < ROUNDING ? "wrong_not" : "wrong_by"];
    const said = keys.map((key, i) => filled(this.words[key], { error: digits(errors[i]) }));
    said.forEach((text, i) => (this.verdicts[i].textContent = text));
    Object.assign(this.root.dataset, { rightError: errors[0], wrongError: errors[1] });
    clearTimeout(this.resting);
    this.resting = setTimeout(() => (this.spoken.textContent = said.join(" ")), SPOKEN_AFTER_MS);
  }

  /** Every step of the merge: the formula, and the same with numbers. */
  lines(scores, { blocks, max, factors, sum }) {
    const own = ["x", "y"].map((block, i) => {
      const powers = scores[i].map((value) => power(value, blocks[i].max)).join(" + ");
      const body = `m = ${score(blocks[i].max)},  l = ${powers} = ${digits(blocks[i].sum)}`;
      return [filled(this.words.own, { block }), body];
    });
    const factor = ["x", "y"].map((block, i) => {
      const written = power(blocks[i].max, max);
      return filled(this.words.factor, { block, power: written, value: digits(factors[i]) });
    });
    const shares = factors.map((value, i) => `${digits(value)} · ${digits(blocks[i].sum)}`).join(" + ");
    const first = (blocks[0].powers[0] * factors[0]) / sum;
    const weight = `${power(scores[0][0], blocks[0].max)} · ${digits(factors[0])} / ${digits(sum)}`;
    return [
      ...own,
      [this.words.max, `m = max(${blocks.map((block) => score(block.max)).join(", ")}) = ${score(max)}`],
      [this.words.factors, factor.join(",  ")],
      [this.words.sum, `l = ${shares} = ${digits(sum)}`],
      [this.words.weight, `${weight} = ${digits(first)}`],
    ];
  }

  stop() {
    clearTimeout(this.resting);
    this.root.remove();
  }
}

/** Called by Streamlit; the visitor's sliders stay as they are when the page runs again. */
export default function (component) {
  const { parentElement, data } = component;
  if (!placed.has(parentElement)) placed.set(parentElement, new MergeFormula(parentElement, data));
  return () => {
    placed.get(parentElement)?.stop();
    placed.delete(parentElement);
  };
}
