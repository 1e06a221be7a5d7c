import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { IMAGE_MIME_TYPES, type ImageMimeType, readImageHeader } from "../../contract/image-formats.ts";
import { measureImage, missingEnd } from "../../contract/image-structure.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { liesInOne, realPathBelow } from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { truncateCodePoints } from "../../kernel/text.ts";
import type { ReferenceSpec } from "../../prompts/check-row.ts";
import {
  MOST_SHOWN_CHARS,
  NOT_AN_IMAGE,
  NOT_BASE64,
  OTHER_TYPE,
  type Report,
  tooLarge,
  urlProblem,
} from "../../prompts/problems.ts";
import { readFacts } from "../directory/run-files.ts";
import type { Kept, Spool } from "./spool.ts";

type ImageHeader = NonNullable<ReturnType<typeof readImageHeader>>;

/** A reference image, checked. */
export interface PromptReference {
  id?: string;
  type?: string;
  mimeType: ImageMimeType;
  sha256: string;
  bytes: number;
  /** 0 when the header does not say. */
  pixels: number;
  /** The bytes: in a file, or kept in the spool when they were inline. */
  source: { path: string } | { kept: Kept };
}

const WHOLE = "copy or save it again";

interface LoadOptions {
  /** Paths are relative to this directory. */
  baseDir: string;
  limits: Limits;
  /** Takes the bytes of inline images. */
  spool: Spool;
  /** Files lie below this directory, also where links lead. Default: anywhere. */
  root?: string | undefined;
  /** No file in these directories is read. Default: none. */
  hidden?: readonly string[] | undefined;
}

/**
 * Reads the facts of a reference image: size, hash, type by its bytes, and whether its header and its end are intact.
 * Null when something is wrong, which is reported. The service decodes the pixels, not this program. The bytes of a file
 * are not kept, since hundreds of references would fill the memory.
 */
export async function loadReference(
  spec: ReferenceSpec,
  { baseDir, limits, spool, root, hidden = [] }: LoadOptions,
  report: Report,
): Promise<PromptReference | null> {
  if (spec.inline !== undefined) return inlineReference(spec, spec.inline, { limits, spool }, report);
  if (spec.path === undefined) return null;
  const url = urlProblem(spec.path);
  if (url !== null) {
    report(spec.field, url);
    return null;
  }
  const path = resolve(baseDir, spec.path);
  const shown = truncateCodePoints(spec.path, MOST_SHOWN_CHARS, "…");
  const real = root === undefined ? path : await realPathBelow(root, path);
  if (real === null || (await liesInOne(hidden, real))) {
    const problem = real === null ? `leads out of ${root}; copy it there` : "belongs to imgbatch itself";
    report(spec.field, `${shown} ${problem}`);
    return null;
  }
  const facts = await readImageFile(path, limits.referenceImageBytes, root);
  if (typeof facts === "string") {
    report(spec.field, `${shown} ${facts}`);
    return null;
  }
  const { header } = facts;
  if (header === null) report(spec.field, `${shown} ${OTHER_TYPE}`);
  return header === null ? null : toReference(spec, { ...facts, header, source: { path } });
}

interface ImageFacts {
  sha256: string;
  bytes: number;
  /** Returns null for any other type. */
  header: ImageHeader | null;
}

/** Returns the facts of a file, or the problem. */
async function readImageFile(
  path: string,
  maxBytes: number,
  root: string | undefined,
): Promise<ImageFacts | string> {
  try {
    const facts = await stat(path);
    if (!facts.isFile()) return "is not a file";
    if (facts.size > maxBytes) return tooLarge(facts.size, maxBytes);
    const { head: whole, ...rest } = await readFacts(path, maxBytes, root);
    if (rest.bytes > maxBytes) return tooLarge(rest.bytes, maxBytes);
    const header = readImageHeader(whole);
    if (header === null) return { ...rest, header };
    const damage = damageOf(whole, header);
    if (damage !== null) return `is a damaged image: ${damage}; ${WHOLE}`;
    return excessOf(whole) ?? { ...rest, header };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    return code === "ENOENT"
      ? "does not exist (paths are relative to the prompt file)"
      : `cannot be read (${code})`;
  }
}

function inlineReference(
  spec: ReferenceSpec,
  inline: { data: string; mimeType: string },
  { limits, spool }: Pick<LoadOptions, "limits" | "spool">,
  report: Report,
): PromptReference | null {
  const wrong = (field: string, message: string) => {
    report(`${spec.field}.${field}`, message);
    return null;
  };
  if (!isBase64(inline.data)) return wrong("data", NOT_BASE64);
  const data = Buffer.from(inline.data, "base64");
  if (data.length > limits.referenceImageBytes)
    return wrong("data", tooLarge(data.length, limits.referenceImageBytes));
  const header = readImageHeader(data);
  if (header === null) return wrong("data", NOT_AN_IMAGE);
  if (header.mimeType !== inline.mimeType) {
    const right = IMAGE_MIME_TYPES.some((type) => type === inline.mimeType)
      ? header.mimeType
      : IMAGE_MIME_TYPES.join(", ");
    return wrong("mime_type", `is ${JSON.stringify(inline.mimeType)}; it should be ${right}`);
  }
  const damage = damageOf(data, header);
  if (damage !== null) return wrong("data", `is a damaged image: ${damage}; give all of its bytes`);
  const excess = excessOf(data);
  if (excess !== null) return wrong("data", excess);
  const facts = { sha256: sha256Hex(data), bytes: data.length, header };
  return toReference(spec, { ...facts, source: { kept: spool.keep(data) } });
}

/** Returns the damage that shows without decoding; null for none. */
function damageOf(data: Buffer, { mimeType, widthPx, heightPx }: ImageHeader): string | null {
  if (!widthPx || !heightPx) return "its header gives no size";
  return missingEnd(data, mimeType);
}

/** Returns the limit that the image exceeds; null for none. Pixels are counted together with those of the other images. */
function excessOf(data: Buffer): string | null {
  const measured = measureImage(data, FIXED_LIMITS.referencePixels);
  return typeof measured === "string" ? measured : null;
}

/** Checks without another copy of the text, which may be long. Unused bits must be 0. */
function isBase64(text: string): boolean {
  const end = text.slice(-4);
  const isWhole = text !== "" && text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text);
  return isWhole && Buffer.from(end, "base64").toString("base64") === end;
}

function toReference(
  spec: ReferenceSpec,
  { sha256, bytes, header, source }: ImageFacts & { header: ImageHeader; source: PromptReference["source"] },
): PromptReference {
  const pixels = (header.widthPx ?? 0) * (header.heightPx ?? 0);
  const { mimeType } = header;
  const labels = {
    ...(spec.id === undefined ? {} : { id: spec.id }),
    ...(spec.type === undefined ? {} : { type: spec.type }),
  };
  return { ...labels, mimeType, sha256, bytes, pixels, source };
}
