// Numbers as they are written on the screen. A minus is a minus sign, not a hyphen.

/** A score with one decimal. */
export function score(value) {
  return value.toFixed(1).replace("-", "−");
}

/** e^(one − other), with a plus where the other is below zero; it is not broken between lines. */
export function power(one, other) {
  const sign = other < 0 ? "+" : "−";
  return `e^(${score(one)}\u00a0${sign}\u00a0${score(Math.abs(other))})`;
}

/** A result with three significant digits, small ones with a power of ten. */
export function digits(value) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 0.001) return value.toPrecision(3);
  const [front, power] = value.toExponential(1).split("e");
  const raised = [...power].map((sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)] ?? "");
  return `${front}·10${raised.join("")}`;
}

/** `template` with each {name} replaced by values[name]. */
export function filled(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}
