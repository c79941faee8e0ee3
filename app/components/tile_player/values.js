// The numbers of one row at one step, by name, as numbers and in words; and the sentence that tells them.

import { fill } from "../patch_canvas/words.js";
import { figure, tokenText } from "./numbers.js";
import { outputSoFar, rowState } from "./walk.js";

/** Every number that a formula, the table or the sentence may name, as numbers. */
export function stepValues(walk, index, row) {
  const step = walk.steps[index];
  const state = rowState(walk, index, row);
  const place = row * walk.head_dim;
  const out = step.get("output")[place];
  const isFirst = index === 0 || walk.steps[index - 1].phase !== step.phase;
  const oldOut = isFirst ? 0 : walk.steps[index - 1].get("output")[place];
  const values = { ...state, out, old_out: oldOut, log_sum_exp: walk.logSumExp[row] };
  values.new_out = out * (dividesEarly(walk) ? state.sum : 1) - oldOut * keptFactor(walk, state);
  const soFar = outputSoFar(walk, index, row);
  values.divided = soFar ? soFar[0] : NaN;
  for (const name of ["weights", "grad_weights"]) if (step.has(name)) values[name] = step.get(name)[state.at];
  if (step.has("delta")) {
    values.delta = step.get("delta")[row];
    values.grad_score = values.weights * (values.grad_weights - values.delta);
  }
  return values;
}

function dividesEarly(walk) {
  return walk.dividesLast && walk.broken === "divided-every-step";
}

/** By what the old output enters the new one, before any division. */
function keptFactor(walk, { rescale }) {
  const isKept = walk.dividesLast && walk.broken === "output-not-rescaled";
  return walk.flash && !isKept ? rescale : 1;
}

export function asText(values, player, walk) {
  const texts = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, figure(value)]));
  const step = walk.steps[player.step];
  const { words, data } = player;
  texts.best = values.best === null ? words.padding : tokenText(words, data.header, values.best);
  const range = { first: step.key_start, last: step.key_start + step.keys - 1 };
  texts.keys = fill(step.keys === 1 ? words.one_key : words.keys, range);
  texts.row = player.rowText;
  texts.scale = figure(walk.scale);
  texts.limit = figure(Math.exp(walk.most_rise));
  return texts;
}

/** What happens at this step, and at the end one sentence more; beside a broken walk, in the right one. */
export function sentence(player) {
  const { walk, broken } = player.data;
  const { words } = player;
  const step = walk.steps[player.step];
  const values = stepValues(walk, player.step, player.row);
  const texts = asText(values, player, walk);
  const parts = [fill(words.say[kindOf(walk, player.step, values)], texts)];
  if (player.step === walk.last) parts.push(fill(words.say_last[walk.implementation], texts));
  return (broken ? [words.say_right, ...parts] : parts).join(" ");
}

function kindOf(walk, index, { tileMax, oldMax, maximum }) {
  const { phase } = walk.steps[index];
  if (phase) return phase;
  if (tileMax === -Infinity) return "hidden";
  if (!walk.flash) return "backward";
  if (index === 0) return "first";
  if (oldMax === -Infinity) return "first_seen"; // a causal mask hid all that fa3 passed before
  if (tileMax > oldMax) return maximum === oldMax ? "lags" : "rose";
  return "stays";
}
