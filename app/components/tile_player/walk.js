// Reads the bytes that `blob.py` packs, and answers what one row of the walk looks like at a step.

import { decodeHalf } from "../patch_canvas/blob.js";

const DIVIDED = "divided-every-step";
const FLASH = ["fa1", "fa2", "fa3"];

/** Arrays are views into the bytes; half precision is decoded when it is first asked for. */
export function readPlayer(bytes) {
  const whole = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  const length = new DataView(whole.buffer, whole.byteOffset, 4).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + length)));
  const base = whole.byteOffset + 4 + length;
  const decoded = new Map();
  const array = (place) => {
    if (place === undefined) return null;
    if (decoded.has(place)) return decoded.get(place);
    const { kind, start, bytes: size } = header.sections[place];
    let values = new Uint8Array(whole.buffer, base + start, size);
    if (kind === "float32") values = new Float32Array(whole.buffer, base + start, size / 4);
    if (kind === "float16") values = decodeHalf(values);
    decoded.set(place, values);
    return values;
  };
  return {
    header,
    picture: array(header.picture),
    walk: openWalk(header.walk, array),
    broken: header.broken && openWalk(header.broken, array),
  };
}

function openWalk(packed, array) {
  const whole = {}; // arrays of naive's softmax, joined from the tiles of another phase
  const steps = packed.steps.map((step) => ({
    ...step,
    get: (name) => (name in step.joined ? (whole[name] ??= join(name, step)) : array(step.arrays[name])),
    has: (name) => name in step.arrays || name in step.joined,
  }));
  const join = (name, { keys, joined }) => joinTiles(
    steps.filter((step) => step.phase === joined[name]), name, packed.rows, keys,
  );
  const last = steps.length - 1;
  const flash = FLASH.includes(packed.implementation);
  const dividesLast = flash && packed.implementation !== "fa1";
  const fromTheEnd = packed.implementation === "fa3"; // its first tile holds the last keys
  const walk = { ...packed, steps, last, flash, dividesLast, fromTheEnd };
  walk.output = array(packed.output);
  walk.logSumExp = array(packed.log_sum_exp);
  return walk;
}

/** Tiles [rows, keys] side by side as [rows, all keys]. */
function joinTiles(tiles, name, rows, across) {
  const joined = new Float32Array(rows * across);
  for (const tile of tiles) {
    const values = tile.get(name);
    for (let row = 0; row < rows; row += 1) {
      const part = values.subarray(row * tile.keys, (row + 1) * tile.keys);
      joined.set(part, row * across + tile.key_start);
    }
  }
  return joined;
}

/** The scores of one row at a step, [keys]. */
export function scoresOf(step, row) {
  return step.get("scores").subarray(row * step.keys, (row + 1) * step.keys);
}

/** e^(score − maximum) as the kernel takes it, in its own precision, so that what overflows there does here. */
export function weightOf(walk, score, maximum) {
  if (score === -Infinity) return 0;
  const shift = maximum === -Infinity ? 0 : maximum;
  return Math.fround(Math.exp((walk.broken === "log-base" ? Math.LN2 * score : score) - shift));
}

/** The scores that padding was given in a row, where a broken walk counts them. */
function paddingOf(walk, step, row) {
  if (!step.has("padding")) return [];
  const padding = step.get("padding");
  const across = padding.length / walk.rows;
  return padding.subarray(row * across, (row + 1) * across);
}

/** Maximum, sum and their past for one row at a step; what a tile adds is taken from the scores as sent. */
export function rowState(walk, index, row) {
  const step = walk.steps[index];
  const before = index > 0 && walk.steps[index - 1].phase === step.phase ? walk.steps[index - 1] : null;
  const scores = scoresOf(step, row);
  const padding = paddingOf(walk, step, row);
  let best = 0;
  for (let key = 1; key < scores.length; key += 1) if (scores[key] > scores[best]) best = key;
  const tileMax = Math.max(scores[best], ...padding);
  const maximum = step.get("running_max")[row];
  let added = 0;
  for (const score of scores) added += weightOf(walk, score, maximum);
  for (const score of padding) added += weightOf(walk, score, maximum);
  const oldMax = before ? before.get("running_max")[row] : -Infinity;
  const rescale = step.get("rescale")[row];
  return {
    best: tileMax > scores[best] ? null : step.key_start + best,
    at: row * step.keys + best,
    tileMax,
    oldMax,
    maximum,
    alpha: walk.implementation === "fa1" ? alphaOf(walk, oldMax, maximum) : rescale,
    rescale,
    oldSum: before ? before.get("running_sum")[row] : 0,
    sum: step.get("running_sum")[row],
    added,
    share: largestShare(walk, scores, oldMax),
  };
}

/** What one thread's weights add up to against the old maximum; four threads share a row, in pairs of keys. */
function largestShare(walk, scores, oldMax) {
  if (oldMax === -Infinity) return Infinity;
  const shares = [0, 0, 0, 0];
  scores.forEach((score, key) => {
    shares[(key >> 1) % 4] += weightOf(walk, score, oldMax);
  });
  return Math.max(...shares);
}

/** FlashAttention-1 keeps it in one factor with both sums, so it is taken from the two maxima. */
function alphaOf(walk, oldMax, maximum) {
  if (oldMax === -Infinity) return 0;
  return Math.exp(walk.broken === "alpha-upside-down" ? maximum - oldMax : oldMax - maximum);
}

/** What a weight of a step is divided by at once, and what the output before is multiplied by there. */
function factorsAt(walk, step, row) {
  const rescale = step.get("rescale")[row];
  const sum = step.get("running_sum")[row] || 1;
  if (walk.implementation === "fa1") return { divisor: sum, kept: rescale };
  if (walk.broken === DIVIDED) return { divisor: sum, kept: rescale / sum };
  return { divisor: 1, kept: walk.broken === "output-not-rescaled" ? 1 : rescale };
}

/** Whether the output as the kernel holds it still waits for its division by the sum. */
function waitsForDivision(walk) {
  return walk.dividesLast && walk.broken !== DIVIDED;
}

/**
 * What each value counts for in the row's output so far, [tokens]; NaN where the key was not seen yet.
 * For a broken walk these are the weights that its mistake really gave.
 */
export function mapSoFar(walk, index, row) {
  const map = new Float32Array(walk.tokens).fill(NaN);
  if (!walk.flash) return storedWeights(walk, index, row, map);
  let factor = waitsForDivision(walk) ? 1 / (walk.steps[index].get("running_sum")[row] || 1) : 1;
  for (let at = index; at >= 0; at -= 1) {
    const step = walk.steps[at];
    const maximum = step.get("running_max")[row];
    const scores = scoresOf(step, row);
    const { divisor, kept } = factorsAt(walk, step, row);
    for (let key = 0; key < step.keys; key += 1) {
      map[step.key_start + key] = (weightOf(walk, scores[key], maximum) / divisor) * factor;
    }
    factor *= kept;
  }
  return map;
}

/** naive and backward hold the weights themselves; naive has none before its second kernel. */
function storedWeights(walk, index, row, map) {
  const { phase } = walk.steps[index];
  if (phase === "pairs") return map;
  const source = phase === "sums" ? "softmax" : phase;
  walk.steps.forEach((step, at) => {
    if (step.phase !== source || (phase !== "sums" && at > index) || !step.has("weights")) return;
    const weights = step.get("weights");
    for (let key = 0; key < step.keys; key += 1) map[step.key_start + key] = weights[row * step.keys + key];
  });
  return map;
}

/** The row's output as it would be if the walk ended here, [dim]; null where there is none yet. */
export function outputSoFar(walk, index, row) {
  const step = walk.steps[index];
  if (step.phase === "pairs" || step.phase === "softmax") return null;
  const width = walk.head_dim;
  const output = step.get("output").subarray(row * width, (row + 1) * width);
  if (waitsForDivision(walk)) {
    const sum = step.get("running_sum")[row] || 1;
    return Float32Array.from(output, (value) => value / sum);
  }
  if (walk.implementation === "fa2-backward") return Float32Array.from(output, (x) => x * walk.scale);
  return output;
}

/** Largest difference of two outputs against the largest value of the first; NaN if any number is none. */
export function relativeError(right, wrong) {
  let difference = 0;
  let largest = 0;
  for (let at = 0; at < right.length; at += 1) {
    const distance = Math.abs(right[at] - wrong[at]);
    if (!Number.isFinite(distance)) return NaN;
    difference = Math.max(difference, distance);
    largest = Math.max(largest, Math.abs(right[at]));
  }
  return largest > 0 ? difference / largest : difference;
}
