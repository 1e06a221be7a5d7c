/** A line that is not UTF-8. */
export interface BadLine {
  line: number;
  message: string;
}

const NEWLINE = 0x0a;

/**
 * The text of a file: UTF-8 with or without a byte order mark. When it is not, the lines at fault are named and the
 * text has replacement characters in their place, so that the other lines can still be checked.
 * Rule: FILE-3.
 */
export function decodeText(bytes: Uint8Array): { text: string; bad: BadLine[] } {
  if ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)) {
    return { text: "", bad: [{ line: 1, message: "the file is UTF-16; save it as UTF-8" }] };
  }
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(bytes), bad: [] };
  } catch {
    return { text: new TextDecoder().decode(bytes), bad: badLines(bytes) };
  }
}

function badLines(bytes: Uint8Array): BadLine[] {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const bad: BadLine[] = [];
  let start = 0;
  for (let line = 1; start <= bytes.length; line++) {
    const newline = bytes.indexOf(NEWLINE, start);
    const end = newline < 0 ? bytes.length : newline;
    try {
      decoder.decode(bytes.subarray(start, end));
    } catch {
      bad.push({ line, message: "is not valid UTF-8; save the file as UTF-8" });
    }
    start = end + 1;
  }
  return bad;
}
