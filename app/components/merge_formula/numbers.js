// The arithmetic of two blocks of scores, in float64. No page in here, so that it can be tested alone.

/** One block by itself: its maximum m, its exponentials against m, and their sum l. */
export function ofBlock(scores) {
  const max = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - max));
  return { max, powers, sum: total(powers) };
}

/** Softmax with the maximum taken out first. */
export function softmax(scores) {
  const { powers, sum } = ofBlock(scores);
  return powers.map((power) => power / sum);
}

/** Two blocks joined by their m and l only. Milakov and Gimelshein 2018, section 3.1. */
export function merge(x, y) {
  const blocks = [ofBlock(x), ofBlock(y)];
  const max = Math.max(...blocks.map((block) => block.max));
  const factors = blocks.map((block) => Math.exp(block.max - max));
  const sum = total(blocks.map((block, i) => block.sum * factors[i]));
  const weights = blocks.flatMap((block, i) => block.powers.map((power) => (power * factors[i]) / sum));
  return { blocks, max, factors, sum, weights };
}

/** The formula in circulation: softmax(softmax(x) e^(m_x - m), softmax(y) e^(m_y - m)). */
export function circulating(x, y) {
  const { blocks, factors } = merge(x, y);
  const inner = blocks.flatMap((block, i) => block.powers.map((power) => (power / block.sum) * factors[i]));
  return softmax(inner);
}

/** The largest difference between two lists. */
export function farthest(one, other) {
  return Math.max(...one.map((value, i) => Math.abs(value - other[i])));
}

function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}
