import { lstat, readFile, realpath } from "node:fs/promises";
import { basename, dirname, extname, join, relative, resolve, sep } from "node:path";
import { Readable } from "node:stream";
import { ZipFile } from "yazl";
import { saving } from "../../client/file-errors.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { readImageHeader } from "../../contract/image-formats.ts";
import { regularFilePieces, writeFileDurably } from "../../kernel/files.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { parseJson } from "../../kernel/json.ts";
import { counted, formatSize } from "../../kernel/text.ts";
import { readLines } from "../../prompts/lines.ts";
import { sourceOf } from "../../runs/derived-files.ts";
import { type RunInput, readRunInput, requireUndamaged } from "../../runs/directory/input.ts";
import {
  CHECKS_FILE,
  FILES_FILE,
  INPUT_FILE,
  REFERENCES_FOLDER,
  REVIEW_FILE,
} from "../../runs/directory/names.ts";
import { RESULTS_FILE, RETRY_FILE, type ResultLine, readResults } from "../../runs/directory/results.ts";
import { isIntact, type ResultFile, requireReplaceable } from "../../runs/directory/run-files.ts";
import { RUN_STATE_FILE, readRunState } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import { contactSheet, GALLERY_FILE } from "../../runs/reports/gallery.ts";
import { buildReport } from "../../runs/reports/run-report.ts";
import { stands } from "../../runs/standing.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import * as option from "../options.ts";
import { nextCommand } from "../output/next-step.ts";
import { fetchAgain, loadThumbnail } from "../output/reports.ts";
import { noRun } from "../targets.ts";

const options = {
  output: option.path({
    flags: "-o, --output <file>",
    description: "the ZIP to write",
    default: "<name of the directory>.zip",
  }),
  previews: option.flag({
    flags: "--previews",
    description: "pictures of at most 1,024 pixels (WebP) instead of the files",
  }),
  force: option.flag({ flags: "--force", description: "replace an existing file" }),
};

export const command = defineCommand({
  arguments: [{ name: "<dir>", description: "the output directory of a run" }],
  options,
  examples: ["imgbatch pack prompts-images", "imgbatch pack prompts-images --output for-anna.zip --previews"],
  exits: ["conflict", "temporary", "saving", "interrupted", "terminated"],
  run,
});

const PREVIEW_EDGE_PX = 1024;
/** Noon in local time, which the format stores: the same bytes in every time zone. Nothing is deflated: the same with every zlib. */
const ENTRY = {
  mtime: new Date(1980, 0, 1, 12),
  forceDosTimestamp: true,
  compress: false,
  mode: 0o100644,
};

/** `imgbatch pack`: writes what a run has made into one ZIP, whose bytes depend on nothing else. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { options, cwd, output, signal } = context;
  const [shownDir = "."] = context.arguments;
  const dir = resolve(cwd, shownDir);
  const shownFile = options.output ?? `${basename(dir)}.zip`;
  const file = resolve(cwd, shownFile);
  const state = await readRunState(dir);
  if (state === null) throw noRun(shownDir, cwd);
  await requireFree(file, shownFile, options.force);
  const lines = await readResults(dir);
  const input = await readRunInput(dir);
  // What no run has written is not handed over: it may be a link to another file.
  requireUndamaged(input);
  await requireForeign(dir, file, shownFile, lines);
  output.progress("checking the images");
  await requireWhole(context, { dir, shownDir, state, lines, input });
  const contents = await contentsOf(dir, { lines, input }, options.previews);
  const zip = new ZipFile();
  addEntries(zip, context, { dir, state, lines, input, contents });
  let bytes = 0;
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    for await (const piece of zip.outputStream) {
      signal.throwIfAborted();
      bytes += piece.length;
      yield piece as Uint8Array;
    }
  };
  await saving(file, () => writeFileDurably(file, pieces()));
  output.settle();
  const images = contents.pictures.length;
  output.note(`${shownFile} has ${counted(images, "image")} and their contact sheet (${formatSize(bytes)})`);
  return { json: { file, bytes, images, previews: contents.isPreview }, lines: [shownFile] };
}

async function requireFree(file: string, shown: string, mayReplace: boolean): Promise<void> {
  await requireReplaceable(file);
  if (mayReplace || (await lstat(file).catch(() => null)) === null) return;
  throw new ImgbatchError("FILE_EXISTS", `${shown} exists already.`, {
    param: "--output",
    advice: "add --force to replace it, or name another file with --output",
  });
}

/** Throws `FILE_EXISTS` if the ZIP would replace a file of the run itself. */
async function requireForeign(
  dir: string,
  file: string,
  shown: string,
  lines: readonly ResultLine[],
): Promise<void> {
  const folder = await realpath(dirname(file)).catch(() => dirname(file));
  const path = relative(await realpath(dir), join(folder, basename(file)))
    .split(sep)
    .join("/");
  const own = [
    RUN_STATE_FILE,
    INPUT_FILE,
    RESULTS_FILE,
    RETRY_FILE,
    REVIEW_FILE,
    CHECKS_FILE,
    FILES_FILE,
    GALLERY_FILE,
  ];
  const isImage = lines.some(({ files }) => files.some((each) => each.path === path));
  if (!own.includes(path) && !path.startsWith(`${REFERENCES_FOLDER}/`) && !isImage) return;
  throw new ImgbatchError("FILE_EXISTS", `${shown} belongs to the run.`, {
    param: "--output",
    advice: "name another file with --output",
  });
}

/** Throws `IMAGES_MISSING`, which names them, unless every image is here and unchanged, or has failed. */
async function requireWhole(
  { global, signal }: CommandContext,
  run: { dir: string; shownDir: string; state: RunState; lines: readonly ResultLine[]; input: RunInput },
): Promise<void> {
  const { dir, shownDir, state, lines, input } = run;
  const known = new Set(lines.map(({ custom_id }) => custom_id));
  const missing = [...input.keys()].filter((id) => !known.has(id));
  for (const line of lines) {
    if (stands(line, "later", "lost")) missing.push(line.custom_id);
    for (const file of line.files) {
      signal.throwIfAborted();
      if (file.entry !== undefined) {
        const message = `${shownDir} keeps its images in ${file.path} (--zip): hand over that file.`;
        throw new ImgbatchError("USAGE", message, { advice: nextCommand(global, "download", shownDir) });
      }
      if (!(await isIntact(dir, file))) missing.push(file.path);
    }
  }
  if (missing.length === 0) return;
  const again =
    state.kind === "realtime"
      ? "run the command that made this directory again: it makes only what is missing"
      : nextCommand(global, "download", shownDir);
  throw new ImgbatchError(
    "IMAGES_MISSING",
    `Missing here or changed: ${counted(missing.length, "image")} of ${shownDir}. Nothing was written.`,
    { details: missing, advice: fetchAgain({ lines }, shownDir).retryCommand ?? again },
  );
}

/** A picture of the ZIP: what results and contact sheet say of it, and its bytes. */
interface Picture {
  file: ResultFile;
  read: () => Promise<Buffer>;
}

interface Contents {
  isPreview: boolean;
  pictures: readonly Picture[];
  /** The picture that stands for a file of the run, by the path of that file. */
  byPath: ReadonlyMap<string, Picture>;
  /** Reads a file of the run by the path of its picture. */
  readOriginal: (path: string) => Promise<Buffer>;
}

async function contentsOf(
  dir: string,
  { lines, input }: { lines: readonly ResultLine[]; input: RunInput },
  isPreview: boolean,
): Promise<Contents> {
  const thumbnail = isPreview ? await loadThumbnail() : null;
  if (isPreview && thumbnail === null)
    throw new ImgbatchError("INTERNAL", "The library for images does not load; leave --previews out.");
  const byPath = new Map<string, Picture>();
  const originals = new Map<string, () => Promise<Buffer>>();
  const pictures = lines.flatMap((line) => line.files.map((original) => ({ line, original })));
  for (const { line, original } of pictures) {
    const source = sourceOf(input.get(line.custom_id), line);
    const readOriginal = () => readIntact(dir, original);
    const path = isPreview ? previewPath(original.path, originals) : original.path;
    const file = { ...original, path };
    const read = async () => {
      const bytes = await readOriginal();
      if (thumbnail === null) return bytes;
      const small = await thumbnail(bytes, PREVIEW_EDGE_PX, source);
      if (small === null)
        throw new ImgbatchError("VERIFY_FAILED", `${original.path} cannot be decoded; leave --previews out.`);
      Object.assign(file, factsOf(small));
      return Buffer.from(small);
    };
    byPath.set(original.path, { file, read });
    originals.set(path, readOriginal);
  }
  const readOriginal = (path: string) => originals.get(path)?.() ?? Promise.reject(new Error(path));
  return { isPreview, pictures: [...byPath.values()], byPath, readOriginal };
}

function previewPath(path: string, taken: ReadonlyMap<string, unknown>): string {
  const plain = `${path.slice(0, path.length - extname(path).length)}.webp`;
  return taken.has(plain) ? `${path}.webp` : plain;
}

function factsOf(bytes: Uint8Array): Omit<ResultFile, "path"> {
  const { widthPx = null, heightPx = null } = readImageHeader(bytes) ?? {};
  const sha256 = sha256Hex(bytes);
  return { sha256, bytes: bytes.byteLength, mime_type: "image/webp", width: widthPx, height: heightPx };
}

/** Reads a file of the run. Throws `IMAGES_MISSING` if it has changed since it was checked. */
async function readIntact(dir: string, { path, sha256 }: ResultFile): Promise<Buffer> {
  const bytes = await readFile(join(dir, path)).catch(() => null);
  if (bytes !== null && sha256Hex(bytes) === sha256) return bytes;
  throw new ImgbatchError("IMAGES_MISSING", `${path} was changed or removed meanwhile; nothing was written.`);
}

/** Adds all entries; each is read when its turn comes. The results and the sheet come last: they say what the pictures are. */
function addEntries(
  zip: ZipFile,
  { output, clock, signal }: CommandContext,
  run: { dir: string; state: RunState; lines: readonly ResultLine[]; input: RunInput; contents: Contents },
): void {
  const { dir, state, lines, input, contents } = run;
  // Ends the reading of the ZIP with the error.
  zip.on("error", (error) => (zip.outputStream as Readable).destroy(error as Error));
  const add = (name: string, open: () => Promise<Readable>) =>
    zip.addReadStreamLazy(name, ENTRY, (done) => {
      open().then(
        (stream) => done(null, stream),
        (error) => done(error, undefined as never),
      );
    });
  const total = contents.pictures.length;
  for (const [i, { file, read }] of contents.pictures.entries())
    add(file.path, async () => {
      output.progress(`packing image ${i + 1} of ${total}`);
      return Readable.from([await read()], { objectMode: false });
    });
  // A download has none: its results have the prompts.
  if (input.at(0) !== undefined)
    add(INPUT_FILE, async () => Readable.from(regularFilePieces(join(dir, INPUT_FILE))));
  add(RESULTS_FILE, async () =>
    contents.isPreview
      ? textStream(previewResults(dir, contents))
      : Readable.from(regularFilePieces(join(dir, RESULTS_FILE))),
  );
  add(GALLERY_FILE, async () => {
    output.progress("writing the contact sheet");
    const shown = lines.map((line) => ({ ...line, files: line.files.map((file) => inZip(file, contents)) }));
    const report = buildReport({
      directory: basename(dir),
      name: state.request?.task_name ?? null,
      model: state.request?.model ?? state.model ?? null,
      state,
      lines: shown,
      input,
      nowMs: clock.nowMs(),
      // The receiver has no run to repair.
      retryCommand: null,
    });
    const thumbnail = await loadThumbnail();
    return textStream(contactSheet({ report, thumbnail, signal, read: contents.readOriginal }));
  });
  zip.end();
}

function inZip(file: ResultFile, { byPath }: Contents): ResultFile {
  return byPath.get(file.path)?.file ?? file;
}

function textStream(text: AsyncGenerator<string>): Readable {
  return Readable.from(text, { objectMode: false });
}

const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** The results of the run, with the facts of the previews. */
async function* previewResults(dir: string, contents: Contents): AsyncGenerator<string> {
  const lines = readLines(regularFilePieces(join(dir, RESULTS_FILE)), MAX_LINE_BYTES);
  for await (const { text } of lines) {
    const line = parseJson(text) as ResultLine;
    yield `${JSON.stringify({ ...line, files: line.files.map((file) => inZip(file, contents)) })}\n`;
  }
}
