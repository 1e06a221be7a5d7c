/** One page of a list of objects. */
export interface ObjectPage {
  objects: { key: string; sizeBytes: number; changedAtMs: number }[];
  /** Where the next page begins; null on the last page. */
  next: string | null;
}

/** Reads an answer to `ListObjectsV2` with `encoding-type=url`. Throws for anything else, and for one that is not whole. */
export function readPage(text: string): ObjectPage {
  if (!/<ListBucketResult[\s>]/.test(text) || !text.trimEnd().endsWith("</ListBucketResult>"))
    throw notAList();
  const isEncoded = tag(text, "EncodingType") === "url";
  const objects = [...text.matchAll(/<Contents>(.*?)<\/Contents>/gs)].map(([, entry = ""]) => {
    const name = tag(entry, "Key");
    const [sizeBytes, changedAtMs] = [
      Number(tag(entry, "Size")),
      Date.parse(tag(entry, "LastModified") ?? ""),
    ];
    if (name === null || !Number.isSafeInteger(sizeBytes) || Number.isNaN(changedAtMs)) throw notAList();
    return { key: isEncoded ? decodeURIComponent(name.replaceAll("+", " ")) : name, sizeBytes, changedAtMs };
  });
  const next = tag(text, "NextContinuationToken");
  const isTruncated = tag(text, "IsTruncated") === "true";
  if (isTruncated && next === null) throw notAList();
  return { objects, next: isTruncated ? next : null };
}

/** Returns the code of an error answer, like `SlowDown`, or null. */
export function readErrorCode(text: string): string | null {
  const code = tag(text, "Code") ?? "";
  return /^[A-Za-z0-9._-]{1,64}$/.test(code) ? code : null;
}

/** The text of the first element of this name that has no elements in it. */
function tag(text: string, name: string): string | null {
  const content = new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  return content === undefined ? null : decodeEntities(content);
}

const ENTITIES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };

function decodeEntities(text: string): string {
  return text.replace(/&(?:#x([0-9a-f]{1,6})|#([0-9]{1,7})|([a-z]+));/gi, (all, hex, decimal, name) => {
    if (name !== undefined) return ENTITIES[name] ?? all;
    const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

const notAList = () => Object.assign(new Error("the list of objects cannot be read"), { code: "BAD_LIST" });
