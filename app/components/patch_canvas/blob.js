// Reads the bytes that `blob.py` packs: header, picture, maps, pinned maps.

let halfTable = null;

/** The value of every 16-bit pattern; made once, where the browser has no Float16Array. */
function halfValues() {
  if (halfTable) return halfTable;
  halfTable = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits += 1) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    let value = 2 ** (exponent - 25) * (1024 + fraction);
    if (exponent === 0) value = 2 ** -24 * fraction;
    if (exponent === 31) value = fraction ? NaN : Infinity;
    halfTable[bits] = sign * value;
  }
  return halfTable;
}

/** Half-precision bytes as Float32Array. */
export function decodeHalf(bytes) {
  const aligned = bytes.slice().buffer; // a copy starts at an even address
  if (typeof Float16Array === "function") return Float32Array.from(new Float16Array(aligned));
  const table = halfValues();
  return Float32Array.from(new Uint16Array(aligned), (bits) => table[bits]);
}

/** {header, picture: Uint8Array, maps: Float32Array, pinned: Float32Array or null} */
export function unpack(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  let start = 4 + length;
  const [picture, maps, pinned] = header.sections.map((size) => {
    const section = bytes.subarray(start, start + size);
    start += size;
    return section;
  });
  return {
    header,
    picture,
    maps: decodeHalf(maps),
    pinned: pinned.length ? decodeHalf(pinned) : null,
  };
}
