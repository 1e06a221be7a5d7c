import { randomBytes } from "node:crypto";
import { closeSync, createReadStream, openSync, readSync, rmSync, writeSync } from "node:fs";
import { stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import {
  IMAGE_MIME_TYPES,
  type ImageHeader,
  type ImageMimeType,
  readImageHeader,
} from "../../contract/image-formats.ts";
import { measureImage, missingEnd } from "../../contract/image-structure.ts";
import { FIXED_LIMITS, type Limits } from "../../contract/limits.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import type { ReferenceSpec, RowRules, RowSource } from "../../prompts/check-row.ts";
import {
  type FileLine,
  NOT_AN_IMAGE,
  NOT_BASE64,
  OTHER_TYPE,
  type Report,
  tooLarge,
  urlProblem,
} from "../../prompts/problems.ts";
import { PromptReader, type ReadPrompt } from "../../prompts/prompt-reader.ts";
import type { Shape } from "../../prompts/shape.ts";
import { readFacts } from "../directory/run-files.ts";

/** Bytes that the spool keeps. */
interface Kept {
  bytes: number;
  /** The bytes as they were. */
  read(): Buffer;
}

/** A long text that the spool keeps. */
export interface KeptText {
  /** UTF-16 code units, as of a string. */
  length: number;
  /** Bytes of its JSON text, quotes included. */
  jsonBytes: number;
  read(): string;
}

/** A text in memory or in the spool. */
export type PromptText = string | KeptText;

export function textOf(text: PromptText): string {
  return typeof text === "string" ? text : text.read();
}

/** This much of an input stays in memory. */
const MEMORY_BYTES = 16 * 1024 * 1024;

/**
 * Keeps the prompts and images that a run has to send: first in memory, then in a temporary file. The file has no name,
 * so it disappears with the process even after a kill. It is closed when its last reader is collected.
 */
export class Spool {
  #memoryLeft: number;
  #file: SpoolFile | null = null;

  /** `memoryBytes` is how much may stay in memory. */
  constructor(memoryBytes = MEMORY_BYTES) {
    this.#memoryLeft = memoryBytes;
  }

  /** Keeps bytes. Throws `SAVE_FAILED` when the temporary file cannot be written. */
  keep(data: Buffer): Kept {
    if (this.#takeMemory(data.length)) return { bytes: data.length, read: () => data };
    return this.#append(data);
  }

  /** Keeps well-formed text. Throws the same. */
  keepText(text: string): PromptText {
    if (this.#takeMemory(2 * text.length)) return text;
    const kept = this.#append(Buffer.from(text, "utf16le"));
    const jsonBytes = Buffer.byteLength(JSON.stringify(text));
    const { length } = text;
    return { length, jsonBytes, read: () => kept.read().toString("utf16le") };
  }

  #takeMemory(bytes: number): boolean {
    if (bytes > this.#memoryLeft) return false;
    this.#memoryLeft -= bytes;
    return true;
  }

  #append(data: Buffer): Kept {
    this.#file ??= new SpoolFile();
    const file = this.#file;
    const start = file.append(data);
    // Copy the length: a closure over `data` would keep the buffer alive.
    const bytes = data.length;
    return { bytes, read: () => file.read(start, bytes) };
  }
}

/** Closes a file when its last reader is collected. The end of the process closes the others. */
const forgotten = new FinalizationRegistry<number>((descriptor) => closeSync(descriptor));

class SpoolFile {
  readonly #descriptor: number;
  #size = 0;

  constructor() {
    const path = join(tmpdir(), `imgbatch-${randomBytes(8).toString("hex")}`);
    this.#descriptor = trying(() => openSync(path, "wx+", 0o600));
    forgotten.register(this, this.#descriptor);
    // Without a name, the file exists only while it is open.
    rmSync(path, { force: true });
  }

  append(data: Buffer): number {
    const start = this.#size;
    for (let done = 0; done < data.length; )
      done += trying(() => writeSync(this.#descriptor, data, done, data.length - done, start + done));
    this.#size += data.length;
    return start;
  }

  read(start: number, bytes: number): Buffer {
    const data = Buffer.allocUnsafe(bytes);
    for (let done = 0; done < bytes; ) {
      const read = trying(() => readSync(this.#descriptor, data, done, bytes - done, start + done));
      if (read === 0) throw new ImgbatchError("INTERNAL", "A temporary file lost its end.");
      done += read;
    }
    return data;
  }
}

function trying<T>(work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const message = `The input is too large for the memory, and a temporary file cannot be used (${code}).`;
    const advice = `free space in ${tmpdir()}, or set TMPDIR to another directory; nothing was sent`;
    throw new ImgbatchError("SAVE_FAILED", message, { cause, advice });
  }
}

/** One line of a prompt file, checked. */
export interface PromptItem extends Shape {
  /** Null when the line has none; the plan gives it one. */
  customId: string | null;
  prompt: PromptText;
  outputCount: number;
  references: PromptReference[];
  /** The JSON text of the fields that only the caller needs, as an object; null for none. */
  metadata: PromptText | null;
  /** File and line, for messages and results. */
  fileLine: FileLine;
  /** Set for a line of a run's own input: where the prompt was read at first. */
  source?: RowSource;
}

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

/** The name of standard input on the command line. */
export const STDIN = "-";

interface PromptSource {
  /** A path, or `-`. */
  name: string;
  cwd: string;
  /** Opens standard input. */
  stdin: () => AsyncIterable<Uint8Array>;
}

const PIECE_BYTES = 256 * 1024;

/**
 * Reads and checks prompt files, in order, line by line: of a large input only a part stays in memory, the rest goes
 * into `spool`. Throws `INVALID_INPUT` with the problems of every file, one a line (`file:line: field: what is wrong,
 * what would be right`); nothing is half accepted.
 */
export async function readPromptFiles(
  sources: readonly PromptSource[],
  rules: RowRules,
  spool = new Spool(),
): Promise<PromptItem[]> {
  const input: Input = { rules, spool, reader: new PromptReader(rules), items: [] };
  for (const source of sources) await readOne(source, input);
  const files = sources.map(fileOf);
  input.reader.finish(files).throwIfAny(files);
  return input.items;
}

/** The state of reading files. */
interface Input {
  rules: RowRules;
  spool: Spool;
  reader: PromptReader;
  items: PromptItem[];
}

async function readOne(source: PromptSource, input: Input): Promise<void> {
  const { reader, rules } = input;
  const file = fileOf(source);
  const path = resolve(source.cwd, source.name);
  const isStdin = source.name === STDIN;
  const baseDir = isStdin ? source.cwd : dirname(path);
  const bytes = isStdin ? source.stdin() : createReadStream(path, { highWaterMark: PIECE_BYTES });
  try {
    for await (const prompt of reader.read(file, bytes, isStdin ? (rules.stdinFormat ?? null) : null))
      await keep(prompt, baseDir, input);
  } catch (error) {
    const code = systemCode(error);
    // The input is not wrong: reading was interrupted, or the disk for temporary files is full.
    if (code === null) throw error;
    const message = code === "ENOENT" ? "no such file" : `cannot be read (${code})`;
    reader.problems.add({ file, line: null }, null, message);
  }
}

async function keep({ row, fileLine, report }: ReadPrompt, baseDir: string, input: Input): Promise<void> {
  const { rules, spool, reader, items } = input;
  const { references: specs, prompt, metadata: extra, ...fields } = row;
  const references: PromptReference[] = [];
  for (const spec of specs) {
    const reference = await loadReference(spec, { baseDir, limits: rules.limits, spool }, report);
    if (reference !== null) references.push(reference);
  }
  // A refused input returns no items.
  if (reader.problems.count > 0) items.length = 0;
  else {
    const metadata = extra === null ? null : spool.keepText(JSON.stringify(extra));
    items.push({ ...fields, prompt: spool.keepText(prompt), references, metadata, fileLine });
  }
}

function systemCode(error: unknown): string | null {
  if (error instanceof ImgbatchError || !(error instanceof Error) || !("syscall" in error)) return null;
  return "code" in error ? String(error.code) : null;
}

function fileOf(source: PromptSource): string {
  return source.name === STDIN ? "<stdin>" : source.name;
}

const WHOLE = "copy or save it again";

interface LoadOptions {
  /** Paths are relative to this directory. */
  baseDir: string;
  limits: Limits;
  /** Takes the bytes of inline images. */
  spool: Spool;
}

/**
 * Reads the facts of a reference image: size, hash, type by its bytes, and whether its header and its end are intact.
 * Null when something is wrong, which is reported. The service decodes the pixels, not this program. The bytes of a file
 * are not kept, since hundreds of references would fill the memory.
 */
export async function loadReference(
  spec: ReferenceSpec,
  { baseDir, limits, spool }: LoadOptions,
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
  const facts = await readImageFile(path, limits.referenceImageBytes);
  if (typeof facts === "string") {
    report(spec.field, `${spec.path} ${facts}`);
    return null;
  }
  const { header } = facts;
  if (header === null) report(spec.field, `${spec.path} ${OTHER_TYPE}`);
  return header === null ? null : toReference(spec, { ...facts, header, source: { path } });
}

interface ImageFacts {
  sha256: string;
  bytes: number;
  /** Returns null for any other type. */
  header: ImageHeader | null;
}

/** Returns the facts of a file, or the problem. */
async function readImageFile(path: string, maxBytes: number): Promise<ImageFacts | string> {
  try {
    const facts = await stat(path);
    if (!facts.isFile()) return "is not a file";
    if (facts.size > maxBytes) return tooLarge(facts.size, maxBytes);
    const { head: whole, ...rest } = await readFacts(path, maxBytes);
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
