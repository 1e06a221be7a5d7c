import { randomUUID } from "node:crypto";
import {
  constants,
  type FileHandle,
  mkdir,
  mkdtemp,
  open,
  readdir,
  realpath,
  rm,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve, sep } from "node:path";
import { z } from "zod";
import { IMAGE_EXTENSIONS, sniffImageType, tierOf } from "../../contract/image-formats.ts";
import type { EntryOf } from "../../contract/provider-entries.ts";
import type { ItemErrorCode } from "../../contract/statuses.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  type LargeImage,
  ProviderError,
  type Trouble,
  type UpstreamUsage,
} from "../../domain/ports/image-provider.ts";
import { hideUsedKeys } from "../../kernel/hide-keys.ts";
import { numberToMicros } from "../../kernel/money.ts";
import { linkSignals } from "../../kernel/signals.ts";
import { formatBytes, joinTurns, truncateCodePoints } from "../../kernel/text.ts";
import { type Leftovers, MARK, startGuard } from "../../processes/guard.ts";
import { startFailure } from "../../processes/programs.ts";
import {
  ALWAYS_SEEN,
  NotStarted,
  type ProgramEnd,
  runProgram,
  startProblem,
  type Tail,
} from "../../processes/run-program.ts";
import { pixelsOf } from "../catalogue/catalogue.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";
import { AnswerImages, withImages } from "../upstream/answer-images.ts";
import { oneLine, upstreamWords } from "../upstream/answer-json.ts";

/** Why a program cannot be started. */
function cannotStart(file: string, error: NodeJS.ErrnoException): ProviderError {
  const { message } = startFailure(file, "", error);
  return new ProviderError("PROVIDER_ITEM_FAILED", `The program cannot be started. ${message}`, {
    trouble: "unreachable",
  });
}

const MAX_MODEL = 200;

/** The meaning of each error that a program can report. */
const ERRORS: Record<string, { code: ItemErrorCode; trouble: Trouble | null }> = {
  refused: { code: "SAFETY_BLOCKED", trouble: null },
  invalid: { code: "INVALID_ARGUMENT", trouble: null },
  auth: { code: "PROVIDER_ITEM_FAILED", trouble: "credential" },
  rate_limited: { code: "PROVIDER_RATE_LIMITED", trouble: "limited" },
  unavailable: { code: "PROVIDER_ITEM_FAILED", trouble: "failing" },
  failed: { code: "PROVIDER_ITEM_FAILED", trouble: "failing" },
};

/** The exit codes of sysexits.h that have a meaning here. */
const EXIT_CODES: Record<number, keyof typeof ERRORS> = {
  64: "invalid", // EX_USAGE
  65: "invalid", // EX_DATAERR
  69: "unavailable", // EX_UNAVAILABLE
  75: "unavailable", // EX_TEMPFAIL
  77: "auth", // EX_NOPERM
};

const amount = z.number().min(0).max(1_000_000);
const imagesLine = z.object({
  images: z.array(z.object({ path: z.string().min(1) })),
  cost_usd: z.unknown().optional(),
  model: z.string().nullish().catch(null),
});
const errorLine = z.object({
  error: z.object({
    code: z.string().catch("failed"),
    message: z.string().catch(""),
    retry_after_ms: z.number().min(0).nullish().catch(null),
  }),
});

/**
 * Returns the images of a program that has ended. Its last line decides; without one, its exit code and the files in
 * `directory`. Throws `ProviderError` for a failure. `seed` is the one that the program was given.
 */
async function readAnswer(
  end: ProgramEnd,
  program: string,
  directory: string,
  seed: number,
  read: AnswerImages,
): Promise<GeneratedImages> {
  const line = lastLine(end.stdout.text());
  const failure = errorLine.safeParse(line);
  if (failure.success) throw reported(failure.data.error);
  if (line !== null && Object.hasOwn(line, "images")) {
    const { data } = imagesLine.safeParse(line);
    if (data === undefined) throw unreadableLine();
    const { images, notes } = await readNamed(
      directory,
      data.images.map(({ path }) => path),
      read,
    );
    const { usage, note } = usageOf(data.cost_usd);
    const model = truncateCodePoints(upstreamWords(data.model ?? ""), MAX_MODEL);
    return { images, notes: [...notes, ...note], usage, seed, modelVersion: model || null };
  }
  if (end.exitCode !== 0) throw endedBadly(end, program);
  const outputs: Outputs = await readFound(directory, read);
  return { ...outputs, modelVersion: null, seed };
}

/** The last line that is not empty, if it is a JSON object. */
function lastLine(stdout: string): object | null {
  const text = stdout.trimEnd();
  try {
    const value: unknown = JSON.parse(text.slice(text.lastIndexOf("\n") + 1));
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}

function reported({ code, message, retry_after_ms }: z.infer<typeof errorLine>["error"]): ProviderError {
  const kind = (Object.hasOwn(ERRORS, code) ? ERRORS[code] : undefined) ?? ERRORS.failed;
  const words = upstreamWords(message) || `The program reports: ${upstreamWords(code)}.`;
  return new ProviderError(kind?.code ?? "PROVIDER_ITEM_FAILED", words, {
    trouble: kind?.trouble ?? null,
    retryAfterMs: retry_after_ms ?? null,
  });
}

function endedBadly({ exitCode, signal, stderr }: ProgramEnd, program: string): ProviderError {
  const how = exitCode === null ? `was ended by ${signal}` : `ended with exit code ${exitCode}`;
  const words = lastWords(stderr);
  const message = `${program} ${how}${words === "" ? "." : `: ${words}`}`;
  // A program that is killed cannot report whether the image was made.
  const trouble = exitCode === null ? "ambiguous" : "failing";
  const kind = ERRORS[EXIT_CODES[exitCode ?? -1] ?? ""] ?? { code: "PROVIDER_ITEM_FAILED", trouble };
  return new ProviderError(kind.code, message, { trouble: kind.trouble });
}

function unreadableLine(): ProviderError {
  const message =
    'The last line of the program cannot be read: "images" must be a list such as [{"path": "1.png"}].';
  return new ProviderError("PROVIDER_ITEM_FAILED", message, { trouble: "ambiguous" });
}

function usageOf(cost: unknown): { usage: UpstreamUsage | null; note: string[] } {
  if (cost === undefined || cost === null) return { usage: null, note: [] };
  const { data } = amount.safeParse(cost);
  if (data === undefined)
    return { usage: null, note: ["The cost_usd of the program is no amount and was not counted."] };
  return {
    usage: { inputTokens: null, outputTokens: null, costMicroUsd: numberToMicros(data) },
    note: [],
  };
}

const MAX_FILES = 16;
const MAX_FILE_BYTES = 64 * 1024 * 1024;
/** Files are read in pieces of this size. */
const PIECE_BYTES = 1024 * 1024;
/** The bytes that show the type of an image. */
const HEAD_BYTES = 12;

interface Outputs {
  images: (Buffer | LargeImage)[];
  notes: string[];
}

/**
 * Reads the files that the program has named, in its order, at most 16. Each must be a regular file inside the directory,
 * with all links followed. Throws `ProviderError` for any other.
 */
async function readNamed(directory: string, paths: readonly string[], read: AnswerImages): Promise<Outputs> {
  const root = await realpath(directory).catch((error) => Promise.reject(unreadable("output_dir", error)));
  const images: Outputs["images"] = [];
  for (const path of paths.slice(0, MAX_FILES)) {
    const found = await realpath(resolve(root, path)).catch((error) =>
      Promise.reject(unreadable(path, error)),
    );
    if (!found.startsWith(root + sep)) throw unusable(path, "is not inside output_dir");
    images.push(await withFile(found, path, (file) => readWhole(file, path, read)));
  }
  const notes = paths.length > MAX_FILES ? [`Only the first ${MAX_FILES} images were kept.`] : [];
  return { images, notes };
}

/** Reads the images in the directory by name, at most 16. Leaves out what is no image, and notes it. */
async function readFound(directory: string, read: AnswerImages): Promise<Outputs> {
  const entries = await readdir(directory, { withFileTypes: true }).catch((error) =>
    Promise.reject(unreadable("output_dir", error)),
  );
  const outputs: Outputs = { images: [], notes: [] };
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = join(directory, entry.name);
    const image = entry.isFile() ? await readIfImage(path, entry.name, read) : null;
    if (image !== null) outputs.images.push(image);
    else outputs.notes.push(`${upstreamWords(entry.name)} is no image and was left out.`);
    if (outputs.images.length + outputs.notes.length === MAX_FILES) break;
  }
  return outputs;
}

function readIfImage(path: string, name: string, read: AnswerImages): Promise<Buffer | LargeImage | null> {
  return withFile(path, name, async (file) => {
    const { buffer } = await file.read(Buffer.alloc(HEAD_BYTES), 0, HEAD_BYTES, 0);
    return sniffImageType(buffer) === null ? null : readWhole(file, name, read);
  });
}

/** Opens without following a link and without waiting for a pipe. */
async function withFile<T>(path: string, name: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch((error) => Promise.reject(unreadable(name, error)));
  try {
    return await work(file);
  } finally {
    await file.close();
  }
}

async function readWhole(file: FileHandle, name: string, read: AnswerImages): Promise<Buffer | LargeImage> {
  const stats = await file.stat();
  if (!stats.isFile()) throw unusable(name, "is no regular file");
  if (stats.size > MAX_FILE_BYTES) {
    const message = `${upstreamWords(name)} is larger than ${formatBytes(MAX_FILE_BYTES)}.`;
    throw new ProviderError("INVALID_IMAGE_OUTPUT", message);
  }
  const sink = read.open();
  for (let at = 0; at < stats.size; ) {
    const bytes = Math.min(PIECE_BYTES, stats.size - at);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(bytes), 0, bytes, at);
    if (bytesRead === 0) break;
    await sink.write(buffer.subarray(0, bytesRead));
    at += bytesRead;
  }
  return sink.image;
}

function unreadable(name: string, error: NodeJS.ErrnoException): ProviderError {
  return unusable(name, `cannot be read (${error.code ?? error.message})`);
}

/** The program has made something that cannot be used: nobody knows whether the image was paid. */
function unusable(name: string, why: string): ProviderError {
  return new ProviderError("PROVIDER_ITEM_FAILED", `The output ${upstreamWords(name)} ${why}.`, {
    trouble: "ambiguous",
  });
}

const STDERR_BYTES = 2048;
/** No secret is longer. */
const LONGEST_SECRET = 8192;

/** Returns the last 2 KiB of the standard error as one safe line; empty when there is none. */
function lastWords(stderr: Tail): string {
  const hidden = hideUsedKeys(stderr.text());
  // The cut may have gone through a secret, whose rest is not found any more.
  const whole = stderr.isCut ? hidden.slice(LONGEST_SECRET) : hidden;
  return oneLine(Buffer.from(whole).subarray(-STDERR_BYTES).toString("utf8"));
}

/**
 * Makes images with a program of one's own, which is started for each image. The program and everything that it has
 * started end with the call. After a kill of this process a guard ends them. Windows has no process groups: there only
 * the program itself is ended.
 */
export function createCommandAdapter(entry: EntryOf<"command">, deps: AdapterDeps): UpstreamAdapter {
  const closing = new AbortController();
  const calls = new Map<Promise<unknown>, AbortSignal>();
  const leftovers = new Set<Leftovers>();
  let guard: ReturnType<typeof startGuard> | null = null;
  const tellGuard = () => {
    guard ??= startGuard();
    guard.update([...leftovers]);
  };

  const call = async (request: ImageRequest, signal: AbortSignal, onSent: () => void) => {
    signal.throwIfAborted();
    const folder = await makeWorkFolder(request);
    const left: Leftovers = { mark: randomUUID(), directory: folder.path };
    try {
      leftovers.add(left);
      tellGuard();
      await folder.fill();
      signal.throwIfAborted();
      onSent();
      const end = await runProgram(argvOf(entry, request, folder), {
        env: environmentOf(entry, deps, left.mark),
        input: JSON.stringify(inputOf(entry, request, folder, deps.clock.nowMs())),
        mark: left.mark,
        clock: deps.clock,
        signal,
        onStarted: (pid) => {
          left.child = { pid, group: process.platform === "win32" ? null : pid };
          tellGuard();
        },
      }).catch((error: unknown) => {
        if (!(error instanceof NotStarted)) throw error;
        throw cannotStart(entry.argv[0] ?? "", error.cause as NodeJS.ErrnoException);
      });
      const images = new AnswerImages(entry.name, deps, signal);
      return await withImages(images, () =>
        readAnswer(end, entry.argv[0] ?? "", folder.output, request.seed, images),
      );
    } finally {
      await removeWorkFolder(folder.path);
      leftovers.delete(left);
      tellGuard();
    }
  };

  return {
    address: entry.argv.join(" "),
    takes: {
      maxReferences: 14,
      ratios: "any",
      tiers: "any",
      pixelsOf: pixelsOf(entry),
      options: ["quality", "background", "seed", "negativePrompt"],
    },
    generate: async (request, signal, onSent): Promise<GeneratedImages> => {
      // A program that is being ended may still hold the graphics card.
      await Promise.allSettled([...calls].flatMap(([ending, { aborted }]) => (aborted ? ending : [])));
      const linked = linkSignals(signal, closing.signal);
      const running = call(request, linked.signal, onSent).finally(() => linked.unlink());
      calls.set(running, linked.signal);
      try {
        return await running;
      } finally {
        calls.delete(running);
      }
    },
    probe: () => requireProgram(entry.argv[0] ?? "", deps.secret("PATH") ?? ""),
    close: async () => {
      closing.abort(new DOMException("The provider was closed.", "AbortError"));
      await Promise.allSettled(calls.keys());
      await guard?.dismiss();
    },
  };
}

/** Replaces the placeholders in one pass, so that no value is read as another placeholder. */
function argvOf({ argv }: EntryOf<"command">, request: ImageRequest, folder: WorkFolder): string[] {
  const values: Record<string, string> = {
    prompt_file: folder.promptFile,
    width: String(request.pixels.widthPx),
    height: String(request.pixels.heightPx),
    seed: String(request.seed),
    output: folder.outputFile,
  };
  const [file = "", ...args] = argv;
  const filled = args.map((arg) =>
    arg.replace(/\{(prompt_file|width|height|seed|output)\}/g, (_, name: string) => values[name] ?? ""),
  );
  return [file, ...filled];
}

/** The one JSON object on the program's standard input. `deadline_ms`: ms since 1970, when the program is ended. */
function inputOf(entry: EntryOf<"command">, request: ImageRequest, folder: WorkFolder, nowMs: number) {
  const { size, ratio, mimeType, quality, background, negativePrompt } = request.options;
  return {
    v: 1,
    id: folder.id,
    prompt: folder.prompt,
    model: request.model,
    ratio,
    size: tierOf(size),
    width: request.pixels.widthPx,
    height: request.pixels.heightPx,
    mime_type: mimeType,
    seed: request.seed,
    ...(quality !== null && { quality }),
    ...(background !== null && { background }),
    ...(negativePrompt !== null && { negative_prompt: negativePrompt }),
    references: folder.references,
    output_dir: folder.output,
    deadline_ms: Math.round(nowMs + entry.timeoutSeconds * 1000),
  };
}

function environmentOf(entry: EntryOf<"command">, deps: AdapterDeps, mark: string): Record<string, string> {
  const env: Record<string, string> = { [MARK]: mark };
  for (const name of [...ALWAYS_SEEN, ...entry.env]) {
    const value = deps.secret(name);
    if (value !== null) env[name] = value;
  }
  return env;
}

/** Throws `ProviderError` unless the program exists and may be run. */
async function requireProgram(file: string, path: string): Promise<void> {
  const problem = await startProblem(file, path);
  if (problem !== null) throw cannotStart(file, problem);
}

/** The private files of one call, in the folder for temporary files. */
interface WorkFolder {
  path: string;
  /** Unique on this machine while the call runs. */
  id: string;
  /** The whole text: earlier turns, then the newest. */
  prompt: string;
  promptFile: string;
  /** The directory that the program writes its images to. */
  output: string;
  /** The path of a file in the output directory, with the extension of the requested type. For programs that take one path. */
  outputFile: string;
  references: { path: string; mime_type: string }[];
  /** Writes the prompt and the reference images. */
  fill(): Promise<void>;
}

/** Makes a folder that only this user can read, with an empty directory for the outputs. */
async function makeWorkFolder(request: ImageRequest): Promise<WorkFolder> {
  const path = await mkdtemp(join(tmpdir(), "imgbatch-command-"));
  const promptFile = join(path, "prompt.txt");
  const output = join(path, "output");
  const prompt = joinTurns(request.earlier ?? "", request.prompt);
  const references = request.references.map(({ mimeType }, index) => ({
    path: join(path, `reference-${index + 1}.${IMAGE_EXTENSIONS[mimeType]}`),
    mime_type: mimeType,
  }));
  return {
    path,
    id: basename(path),
    prompt,
    promptFile,
    output,
    outputFile: join(output, `image.${IMAGE_EXTENSIONS[request.options.mimeType]}`),
    references,
    fill: async () => {
      await mkdir(output, { mode: 0o700 });
      await writeFile(promptFile, prompt, { mode: 0o600 });
      for (const [index, reference] of request.references.entries())
        await reference.lend((bytes) => writeFile(references[index]?.path ?? "", bytes, { mode: 0o600 }));
    },
  };
}

/** Removes the folder. A folder that cannot be removed must not cost an image that was made. */
async function removeWorkFolder(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3 }).catch(() => {});
}
