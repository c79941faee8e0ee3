// Sentences: the words come from Python, only the numbers are put in here.

/** `template` with each {name} replaced by values[name]. */
export function fill(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/** A query in words: a patch by row and column, a prefix token by name. */
export function queryName(words, query) {
  return typeof query === "string"
    ? fill(words.token, { name: query })
    : fill(words.patch, { row: query[0], column: query[1] });
}

/** A probability with three significant digits, small ones with a power of ten. */
export function probability(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  if (value >= 0.001) return value.toPrecision(3);
  const [digits, power] = value.toExponential(1).split("e");
  const raised = [...power].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)]);
  return `${digits}·10${raised.join("")}`;
}

/** A share as a percentage. */
export function percent(share) {
  return share === null ? "–" : `${(100 * share).toFixed(1)} %`;
}
