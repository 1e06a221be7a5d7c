import { FIXED_LIMITS, type Limits } from "../contract/limits.ts";

/** The facts of an item that decide how many fit into a batch. */
interface SizedItem {
  prompt: { length: number };
  outputCount: number;
  /** Absent: that of the run. The items of a batch have the same. */
  model?: string;
  negative_prompt?: string;
  references: readonly SizedReference[];
}

interface SizedReference {
  sha256?: string;
  bytes: number;
  /** 0 when the header does not say. */
  pixels: number;
}

const KINDS = ["items", "images", "references", "referenceBytes", "pixels", "bodyBytes"] as const;
/** The size of a batch, and its limits. A reference counts once for each image that uses it. */
type Load = Record<(typeof KINDS)[number], number>;

/** The share of the body limit that the items may use. The rest is for the fields around them. */
const BODY_SHARE = 0.95;

/**
 * Splits items, in their order, into batches that are as large as the service allows. `sharesReferences`: the bytes of equal
 * reference images are sent once in a request.
 */
export function splitIntoBatches<T extends SizedItem>(
  items: readonly T[],
  limits: Limits,
  sharesReferences = false,
): T[][] {
  const most: Load = {
    items: limits.itemsPerBatch,
    images: limits.outputImagesPerBatch,
    references: limits.referenceImagesPerBatch,
    referenceBytes: limits.referenceBytesPerBatch,
    pixels: FIXED_LIMITS.referencePixelsPerRequest,
    bodyBytes: limits.createBodyBytes * BODY_SHARE,
  };
  const batches: T[][] = [];
  let load: Load | null = null;
  let known = new Set<string>();
  for (const item of items) {
    const next = loadOf(item, known);
    const together: Load = load === null ? next : sumOf(load, next);
    const batch = batches.at(-1);
    const isOther = batch?.[0]?.model !== item.model;
    if (batch === undefined || isOther || KINDS.some((kind) => together[kind] > most[kind])) {
      batches.push([item]);
      known = new Set();
      load = loadOf(item, known);
    } else {
      batch.push(item);
      load = together;
    }
    if (sharesReferences)
      for (const { sha256 } of item.references) if (sha256 !== undefined) known.add(sha256);
  }
  return batches;
}

/** `known`: the references whose bytes the request has already, by their hashes. */
function loadOf(item: SizedItem, known: ReadonlySet<string>): Load {
  const sent = item.references.filter(({ sha256 }) => sha256 === undefined || !known.has(sha256));
  const sum = (value: (reference: SizedReference) => number) =>
    sent.reduce((total, r) => total + value(r), 0);
  return {
    items: 1,
    images: item.outputCount,
    references: item.references.length * item.outputCount,
    referenceBytes: sum((reference) => reference.bytes),
    pixels: sum((reference) => reference.pixels),
    // Base64 takes four bytes for three; JSON may escape each character of a prompt as six.
    bodyBytes:
      6 * (item.prompt.length + (item.negative_prompt?.length ?? 0)) +
      1024 +
      512 * item.references.length +
      sum((reference) => Math.ceil(reference.bytes / 3) * 4),
  };
}

function sumOf(a: Load, b: Load): Load {
  const sum = { ...a };
  for (const kind of KINDS) sum[kind] += b[kind];
  return sum;
}
