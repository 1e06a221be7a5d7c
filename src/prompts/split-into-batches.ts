import { FIXED_LIMITS, type Limits } from "../contract/limits.ts";

/** The facts of an item that decide how many fit into a batch. */
interface SizedItem {
  prompt: { length: number };
  outputCount: number;
  references: readonly SizedReference[];
}

interface SizedReference {
  bytes: number;
  /** 0 when the header does not say. */
  pixels: number;
}

const KINDS = ["items", "images", "references", "referenceBytes", "pixels", "bodyBytes"] as const;
/** The size of a batch, and its limits. A reference counts once for each image that uses it. */
type Load = Record<(typeof KINDS)[number], number>;

/** The share of the body limit that the items may use. The rest is for the fields around them. */
const BODY_SHARE = 0.95;

/** Splits items, in their order, into batches that are as large as the service allows. */
export function splitIntoBatches<T extends SizedItem>(items: readonly T[], limits: Limits): T[][] {
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
  for (const item of items) {
    const own = loadOf(item);
    const together: Load = load === null ? own : sumOf(load, own);
    const batch = batches.at(-1);
    if (batch === undefined || KINDS.some((kind) => together[kind] > most[kind])) {
      batches.push([item]);
      load = own;
    } else {
      batch.push(item);
      load = together;
    }
  }
  return batches;
}

function loadOf(item: SizedItem): Load {
  const sum = (value: (reference: SizedReference) => number) =>
    item.references.reduce((total, r) => total + value(r), 0);
  return {
    items: 1,
    images: item.outputCount,
    references: item.references.length * item.outputCount,
    referenceBytes: sum((reference) => reference.bytes),
    pixels: sum((reference) => reference.pixels),
    // Base64 takes four bytes for three; JSON may escape each character of a prompt as six.
    bodyBytes: 6 * item.prompt.length + 1024 + sum((reference) => Math.ceil(reference.bytes / 3) * 4 + 512),
  };
}

function sumOf(a: Load, b: Load): Load {
  const sum = { ...a };
  for (const kind of KINDS) sum[kind] += b[kind];
  return sum;
}
