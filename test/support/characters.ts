import fc from "fast-check";

/** Any character. The unit `binary` of fast-check has the same range, but takes a second to construct. */
export const CHARACTER = fc
  .nat({ max: 0x10f7ff })
  .map((code) => String.fromCodePoint(code < 0xd800 ? code : code + 0x800));
