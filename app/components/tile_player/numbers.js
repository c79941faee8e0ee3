// Numbers, bytes and tokens in words. The words come from Python.

/** A number with `digits` significant digits; infinities and NaN keep their names. */
export function figure(value, digits = 4) {
  if (value === undefined || value === null) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (Number(size.toPrecision(digits)) >= 10 ** digits || size < 1e-3) {
    const [mantissa, power] = size.toExponential(Math.max(0, digits - 2)).split("e");
    const raised = [...power.replace("+", "")].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    return `${sign}${mantissa}·10${raised.join("")}`;
  }
  return sign + size.toPrecision(digits);
}

/** Bytes with three digits and a unit of 1000. */
export function byteText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const text = unit === 0 || value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  return `${text} ${units[unit]}`;
}

/** A token in words: a patch by row and column, one without a place by its name. */
export function tokenText(words, header, token) {
  const prefix = header.prefix.length;
  if (token < prefix) return words.token.replace("{name}", header.prefix[token]);
  const patch = token - prefix;
  const { columns } = header.grid;
  const place = { row: Math.floor(patch / columns), column: patch % columns };
  return words.patch.replace(/\{(\w+)\}/g, (_, name) => place[name]);
}

/** A number that JSON carried, where infinities travel as text. */
export function fromJson(value) {
  return { inf: Infinity, "-inf": -Infinity, nan: NaN }[value] ?? value;
}

/** Bytes of one number. */
export function itemSize(dtype) {
  return dtype.endsWith("16") ? 2 : 4;
}
