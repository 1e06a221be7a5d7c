import { createHash } from "node:crypto";
import { constants, existsSync } from "node:fs";
import { lstat, open, readdir, realpath, rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { IN_REPLAY_DIRECTORY } from "../../contract/batch-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { IMAGE_EXTENSIONS, IMAGE_MIME_TYPES, tierOf } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { ReplayEntry } from "../../contract/provider-entries.ts";
import { type ImageInspector, InvalidImageError } from "../../domain/ports/image-inspector.ts";
import {
  type Capabilities,
  DECISIVE_FIELDS,
  type GeneratedImages,
  type ImageProvider,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  toldRatio,
  type UpstreamFacts,
} from "../../domain/ports/image-provider.ts";
import type { Decoding } from "../../imaging/decoding.ts";
import { rememberDecoded, sharpInspector } from "../../imaging/sharp-images.ts";
import { programName } from "../../kernel/command-line.ts";
import { isPartialFile, makeDirectory, writeFileDurably } from "../../kernel/files.ts";
import { hideApiKeys, safeJson } from "../../kernel/hide-keys.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson, jsonExcess } from "../../kernel/json.ts";
import type { Log } from "../../kernel/log.ts";
import { formatUsd } from "../../kernel/money.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import { systemCodeOf } from "../../kernel/system-errors.ts";
import { counted, truncateCodePoints } from "../../kernel/text.ts";
import type { AdapterDeps } from "../upstream/adapter.ts";
import { AnswerImages, MOST_IMAGES, withImages } from "../upstream/answer-images.ts";
import { upstreamWords } from "../upstream/answer-json.ts";
import { KeptImages, stateOf } from "./kept-images.ts";

/** Of the files and of their keys. Another one makes all recordings again. */
const VERSION = 1;
/** How much of the key is in the names of its files. */
const KEY_CHARS = 16;
/** Of those whose names begin alike. */
const MOST_COMPARED = 50;
/** A hostile file may have names and values of any length. */
const MOST_DIFFERENCE_CHARS = 300;
const MAX_RECORD_BYTES = 2 ** 20;
const MAX_IMAGE_BYTES = 64 * 2 ** 20;
const LIMITS = { maxPixels: 64 * 2 ** 20 };
const PIECE_BYTES = 2 ** 20;
const BOUNDS = { maxDepth: FIXED_LIMITS.jsonDepth, maxElements: FIXED_LIMITS.jsonElements };

type Draft = AdapterDeps["draft"];

/** Everything of a request that decides its picture, as a recording shows it. What was not asked for is left out. */
type Words = Awaited<ReturnType<typeof wordsOf>>;

/** A request that a directory may have an answer to. */
interface Recordable {
  words: Words;
  /** SHA-256 over version and words. */
  key: string;
  /** The name of its files, without the extension. */
  stem: string;
}

/** What an upstream has answered: images, or the words of its refusal. */
type Answer = Pick<GeneratedImages, "modelVersion" | "seed" | "notes"> &
  ({ images: GeneratedImages["images"] } | { refusal: string });

const recordSchema = z.strictObject({
  imgbatch_recording: z.literal(VERSION),
  key: z.string(),
  request: z.record(z.string(), z.json()),
  images: z
    .array(
      z.strictObject({
        file: z.string(),
        sha256: z.string(),
        mime_type: z.enum(IMAGE_MIME_TYPES),
        width: z.int(),
        height: z.int(),
      }),
    )
    .min(1)
    .max(MOST_IMAGES)
    .optional(),
  refusal: z.string().optional(),
  model_version: z.string().nullable(),
  seed: z.int().nullable(),
  notes: z.array(z.string()),
});

async function wordsOf(request: ImageRequest) {
  const { options, references, mask } = request;
  const hashOf = (image: ImageRequest["references"][number]) => image.lend(async (bytes) => sha256Hex(bytes));
  const sent = await Promise.all(references.map(hashOf));
  return {
    model: request.model,
    prompt: request.prompt,
    earlier: request.earlier || undefined,
    negative_prompt: options.negativePrompt ?? undefined,
    // It follows from the first reference.
    aspect_ratio: toldRatio(request) ?? undefined,
    image_size: tierOf(options.size),
    quality: options.quality ?? request.defaultQuality,
    background: options.background ?? undefined,
    seed: options.seed ?? undefined,
    references: sent.length > 0 ? sent : undefined,
    mask: mask && (await hashOf(mask)),
    // The rest depends on what a model has said, and recordings have pictures alone.
    said: decisiveWords(request),
    mime_type: options.mimeType,
    ordinal: request.outputIndex,
  };
}

/** The fields of a vendor's request that change its picture, as JSON; undefined without any. */
function decisiveWords({ verbatim }: ImageRequest): string | undefined {
  const fields = DECISIVE_FIELDS.flatMap((name) => {
    const value = verbatim?.fields[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return fields.length === 0 ? undefined : JSON.stringify(Object.fromEntries(fields));
}

export async function recordable(request: ImageRequest): Promise<Recordable> {
  const words = await wordsOf(request);
  const key = sha256Hex(canonicalJson({ version: VERSION, ...words } as Parameters<typeof canonicalJson>[0]));
  // The name of a file cannot be rid of a key later.
  const slug = hideApiKeys(words.prompt)
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, 40)
    .replace(/^-|-$/g, "");
  return { words, key, stem: `${slug || "image"}-${key.slice(0, KEY_CHARS)}` };
}

/**
 * Throws `ProviderError` `INVALID_ARGUMENT` for a request that holds an API key: a recording shows its request in words, which
 * are compared, and no key is written.
 */
function refuseKeys({ words, stem }: Recordable): void {
  const holdsKey = (value: unknown) => {
    const text = JSON.stringify(value) ?? "";
    return hideApiKeys(text) !== text;
  };
  const [field] = Object.entries(words).find(([, value]) => holdsKey(value)) ?? [];
  if (field === undefined) return;
  const message = `${stem}.json cannot be recorded: ${field} holds an API key, and recordings are for others to read. Take the key out. Nothing was sent.`;
  throw new ProviderError("INVALID_ARGUMENT", message, { source: "service" });
}

/** The answers of a directory to requests: for each a JSON file, and its images beside it. */
export class Recordings {
  readonly #directory: string;
  readonly #inspector: ImageInspector;
  readonly #images = new KeptImages();

  readonly #draft: Draft;

  private constructor(directory: string, inspector: ImageInspector, draft: Draft) {
    this.#directory = directory;
    this.#inspector = inspector;
    this.#draft = draft;
  }

  /**
   * Opens a directory. To record, it is made if it is missing, and rid of what a killed process has half written. Throws
   * `INVALID_CONFIG` for a missing one, a link, and anything else that is no directory. `draft`: see `AdapterDeps`.
   */
  static async open(
    directory: string,
    inspector: ImageInspector,
    records: boolean,
    draft?: Draft,
  ): Promise<Recordings> {
    try {
      const facts = await lstat(directory).catch((error) => {
        if (!records || systemCodeOf(error) !== "ENOENT") throw error;
        return null;
      });
      if (facts?.isSymbolicLink()) throw new Error("it is a link");
      if (facts?.isDirectory() === false) throw new Error("it is no directory");
      if (facts === null) await makeDirectory(directory);
      if (records) await removeUnfinished(directory);
    } catch (error) {
      const isMissing = systemCodeOf(error) === "ENOENT";
      const why = isMissing ? "there is no such directory" : (error as Error).message;
      const advice = isMissing
        ? `make it from real images: ${programName()} exec --replay DIR --record --upstream NAME --max-cost USD -- COMMAND`
        : "name a directory of your own";
      throw new ImgbatchError("INVALID_CONFIG", `replay: ${directory}: ${why}`, { advice });
    }
    return new Recordings(directory, inspector, draft);
  }

  /**
   * Returns the recorded images of a request; null when there is no recording. They are read one after the other, within the
   * memory of all answers, and freed by `discard`. Throws the recorded refusal, and `ProviderError` `INVALID_ARGUMENT`, naming
   * the file, for one that cannot be used.
   */
  async find({ words, key, stem }: Recordable, signal: AbortSignal): Promise<GeneratedImages | null> {
    const name = `${stem}.json`;
    const text = await readSmall(this.#directory, name);
    if (text === null) return null;
    const value = parseOrNull(text);
    const version = (value as { imgbatch_recording?: unknown } | null)?.imgbatch_recording;
    if (typeof version === "number" && version !== VERSION)
      throw unusable(name, `is a recording of version ${version}, and this program reads version ${VERSION}`);
    const { data: record, success } = recordSchema.safeParse(value);
    if (!success) throw unusable(name, "is no recording, or damaged");
    // As JSON has them: without what is left out.
    if (
      record.key !== key ||
      canonicalJson(record.request) !== canonicalJson(JSON.parse(JSON.stringify(words)))
    )
      throw unusable(name, "was changed, or is that of another request: its hash differs");
    const { images = [], refusal, seed } = record;
    // A stranger may have written the texts of a recording.
    const modelVersion = record.model_version && upstreamWords(record.model_version);
    const notes = record.notes.map(upstreamWords);
    if (refusal !== undefined)
      throw new ProviderError("SAFETY_BLOCKED", upstreamWords(refusal), { modelVersion });
    if (images.length === 0) throw unusable(name, "has neither images nor a refusal");
    const answer = new AnswerImages("replay", { ...(this.#draft && { draft: this.#draft }) }, signal);
    return withImages(answer, async () => {
      const read: GeneratedImages["images"][number][] = [];
      for (const { file, sha256, mime_type } of images) {
        if (file !== imageName(stem, sha256, mime_type))
          throw unusable(name, `names ${JSON.stringify(file)}, which is not its own`);
        read.push(await this.#readImage(file, { sha256, mime_type }, answer));
      }
      return { images: read, modelVersion, seed, notes };
    });
  }

  async #readImage(
    file: string,
    { sha256, mime_type }: { sha256: string; mime_type: keyof typeof IMAGE_EXTENSIONS },
    answer: AnswerImages,
  ) {
    const state = await lstat(join(this.#directory, file), { bigint: true }).then(stateOf, () => null);
    const kept = state === null ? null : this.#images.find(file, state, sha256);
    if (kept !== null) return kept;
    const sink = answer.open();
    const hash = createHash("sha256");
    const isThere = await read(this.#directory, file, MAX_IMAGE_BYTES, async (piece) => {
      hash.update(piece);
      await sink.write(piece);
    });
    if (!isThere) throw unusable(file, "is missing");
    if (hash.digest("hex") !== sha256) throw unusable(file, "is damaged: its hash differs");
    const { image } = sink;
    const inspect = (bytes: Buffer) => this.#inspect(bytes);
    const facts = await (Buffer.isBuffer(image) ? inspect(image) : image.lend(inspect)).catch((error) => {
      throw error instanceof InvalidImageError ? unusable(file, `is damaged: ${error.message}`) : error;
    });
    if (facts.mimeType !== mime_type) throw unusable(file, `is ${facts.mimeType}, not ${mime_type}`);
    if (Buffer.isBuffer(image) && state !== null) {
      this.#images.keep(file, { bytes: image, state, sha256 });
      rememberDecoded(image, facts);
    }
    return image;
  }

  /**
   * Keeps an answer: the images first, because the JSON file makes them count. `unusable`: it has images that cannot be used.
   * `again`: another process has kept an answer meanwhile, which is replaced. Throws system errors.
   */
  async keep({ words, key, stem }: Recordable, answer: Answer): Promise<"kept" | "again" | "unusable"> {
    const images: object[] = [];
    if ("images" in answer && answer.images.length === 0) return "unusable";
    for (const image of "images" in answer ? answer.images : []) {
      const bytes = Buffer.isBuffer(image) ? image : await image.read();
      const facts = await this.#inspect(bytes).catch(() => null);
      if (facts === null || bytes.length > MAX_IMAGE_BYTES) return "unusable";
      const { mimeType: mime_type, widthPx: width, heightPx: height } = facts;
      const sha256 = sha256Hex(bytes);
      const file = imageName(stem, sha256, mime_type);
      await writeFileDurably(join(this.#directory, file), bytes);
      images.push({ file, sha256, mime_type, width, height });
    }
    const { modelVersion, seed = null, notes = [] } = answer;
    const made = "refusal" in answer ? { refusal: answer.refusal } : { images };
    const facts = { model_version: modelVersion, seed, notes };
    const record = { imgbatch_recording: VERSION, key, request: words, ...made, ...facts };
    const text = `${safeJson(record, 2)}\n`;
    if (Buffer.byteLength(text) > MAX_RECORD_BYTES) throw new Error("its texts are too long");
    const path = join(this.#directory, `${stem}.json`);
    const isSecond = existsSync(path);
    await writeFileDurably(path, text);
    return isSecond ? "again" : "kept";
  }

  /** Returns the error of a request without a recording. It names the one of the same prompt that differs in the least. */
  async missing({ words, stem }: Recordable): Promise<ProviderError> {
    const { model, prompt, references, ordinal, earlier, mask, said, ...options } = words;
    const asked = Object.entries(options).filter(([, value]) => value !== undefined);
    const facts = [
      ...asked.map(([name, value]) => `${name} ${value}`),
      ...(references ? [counted(references.length, "reference image")] : []),
      ...(mask ? ["a mask"] : []),
      ...(earlier ? ["earlier texts"] : []),
      ...(said ? Object.keys(JSON.parse(said)) : []),
      `image ${ordinal + 1}`,
    ];
    const text = JSON.stringify(truncateCodePoints(prompt, 200, "…"));
    const differs = await this.#nearest(words, stem).catch(() => null);
    const near = differs === null ? "" : ` A recording of this prompt differs in ${differs}.`;
    const message = `There is no recording of ${text} with ${model} (${facts.join(", ")}): ${stem}.json is missing ${IN_REPLAY_DIRECTORY}.${near} Run ${programName()} exec --replay DIR --record to ask the upstream for it.`;
    return new ProviderError("INVALID_ARGUMENT", message, { source: "service" });
  }

  /** Returns what is different in the recording of the same prompt that is most alike; null when there is none. */
  async #nearest(words: Words, stem: string): Promise<string | null> {
    const slug = stem.slice(0, -KEY_CHARS);
    const names = (await readdir(this.#directory)).filter(
      (name) => name.startsWith(slug) && /\.json$/.test(name),
    );
    let nearest: string[] | null = null;
    for (const name of names.slice(0, MOST_COMPARED)) {
      const text = await readSmall(this.#directory, name).catch(() => null);
      const other = text && recordSchema.safeParse(parseOrNull(text)).data?.request;
      if (other?.prompt !== words.prompt) continue;
      const all = Object.entries({ ...other, ...words });
      const different = all.flatMap(([field, value]) => {
        const theirs = other[field];
        if (JSON.stringify(theirs) === JSON.stringify(value)) return [];
        return [typeof theirs === "object" || theirs === undefined ? field : `${field} (${theirs})`];
      });
      if (nearest === null || different.length < nearest.length) nearest = different;
    }
    return nearest === null ? null : truncateCodePoints(nearest.join(", "), MOST_DIFFERENCE_CHARS, "…");
  }

  #inspect(bytes: Buffer) {
    return this.#inspector.inspect(bytes, LIMITS);
  }
}

/** Reads a JSON file; null when it is missing. */
async function readSmall(directory: string, name: string): Promise<Buffer | null> {
  const pieces: Buffer[] = [];
  const isThere = await read(directory, name, MAX_RECORD_BYTES, async (piece) => void pieces.push(piece));
  return isThere ? Buffer.concat(pieces) : null;
}

/**
 * Reads a file piece by piece. False: it is missing. A link is never followed, also when it takes the place of a file
 * meanwhile.
 */
async function read(
  directory: string,
  name: string,
  maxBytes: number,
  take: (piece: Buffer) => Promise<void>,
): Promise<boolean> {
  const path = join(directory, name);
  try {
    const facts = await lstat(path);
    if (facts.isSymbolicLink()) throw unusable(name, "is a link, and links are not followed");
    if (!facts.isFile()) throw unusable(name, "is no file");
    if (facts.size > maxBytes) throw unusable(name, `has ${facts.size} bytes, more than ${maxBytes}`);
    // Windows has no such flags.
    const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;
    const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    // It may have grown meanwhile.
    for await (const piece of file.createReadStream({ end: maxBytes, highWaterMark: PIECE_BYTES }))
      await take(piece as Buffer);
    return true;
  } catch (error) {
    // What takes the pieces has errors of its own.
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
    const code = systemCodeOf(error);
    if (code === "ENOENT") return false;
    throw unusable(name, `cannot be read (${code})`);
  }
}

function unusable(name: string, why: string): ProviderError {
  const message = `${name} ${IN_REPLAY_DIRECTORY} ${why}. Nothing was paid. Restore it, or delete it and record it again.`;
  return new ProviderError("INVALID_ARGUMENT", message, { source: "service" });
}

/** The hash is in the name, so that two processes that record the same never mix their images. */
function imageName(stem: string, sha256: string, mimeType: keyof typeof IMAGE_EXTENSIONS): string {
  return `${stem}-${sha256.slice(0, 8)}.${IMAGE_EXTENSIONS[mimeType]}`;
}

/** How long an image may be without its JSON file. */
const MS_OF_WRITING = 3_600_000;
const IMAGE_NAME = /^(.+-[0-9a-f]{16})-[0-9a-f]{8}\.(png|jpg|webp)$/;

/**
 * Removes what a killed process has half written: pieces of files, and images that no JSON file names. What is younger than
 * an hour stays: another process may be writing it.
 */
async function removeUnfinished(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    const [, stem] = IMAGE_NAME.exec(name) ?? [];
    if (stem === undefined && !isPartialFile(name)) continue;
    const path = join(directory, name);
    const facts = await lstat(path).catch(() => null);
    if (!facts?.isFile() || Date.now() - facts.mtimeMs < MS_OF_WRITING) continue;
    // What cannot be read is no reason to lose an image. A request for it names the file.
    const isNamed =
      stem !== undefined &&
      (await readSmall(directory, `${stem}.json`).then(
        (text) => text?.includes(name) ?? false,
        () => true,
      ));
    if (!isNamed) await rm(path, { force: true });
  }
}

/** Null for what is no JSON, and for JSON that is nested too deep. */
function parseOrNull(text: Buffer): unknown {
  try {
    return jsonExcess(text, BOUNDS) === null ? JSON.parse(text.toString("utf8")) : null;
  } catch {
    return null;
  }
}

/** Money that is held for an image of a recording. One whose outcome is unknown stays held while its process lives. */
interface RecordingHold {
  captured(image: Buffer): Promise<void>;
  released(): Promise<void>;
}

/** What asking upstreams for missing images needs. All providers of a service share it. */
export interface Recording {
  /** The money that is left for it, in micro-dollars. A request takes its price out before it is sent. */
  leftMicroUsd: number;
  /** By key: settles when the requests that have come so far are answered. */
  readonly queues: Map<string, Promise<unknown>>;
  /**
   * Holds the price of an image in the budgets over time; null where there are none. Throws `REALTIME_INSUFFICIENT_BALANCE`
   * where they do not allow it.
   */
  hold(request: ImageRequest, provider: string, microUsd: number): Promise<RecordingHold | null>;
  /** Returns the price of an image in micro-dollars; null when it is not known. */
  priceOf(request: ImageRequest): number | null;
  /** Returns the upstream's id of a requested model; null when the provider does not serve it. */
  modelFor(provider: ImageProvider, requested: string): string | null;
  /** Waits until no other process of this user has the lock of that name, and takes it. Returns the function that frees it. */
  lock(name: string, signal: AbortSignal): Promise<() => void>;
  log: Log;
}

/**
 * Makes a provider that answers with what a directory has of the images of another one, and may be asked for the same. A
 * missing one is an error. With `recording` and an entry that records, the other one makes it, and its images and refusals
 * are kept, never its failures: equal requests wait for each other, also in other processes, so that it is made once. Throws as
 * `Recordings.open`.
 */
export async function createReplayProvider(
  entry: ReplayEntry,
  of: ImageProvider,
  {
    decoding,
    recording,
    draft,
  }: Pick<AdapterDeps, "draft"> & { decoding: Decoding; recording?: Recording | undefined },
): Promise<ItemProvider> {
  const { name, directory, records } = entry;
  const recordings = await Recordings.open(directory, sharpInspector(decoding), records, draft);
  const place = await realpath(directory);
  return {
    kind: "item",
    name,
    concurrency: records ? of.concurrency : REPLAYED_AT_ONCE,
    upstream: factsOf(entry, of),
    serves: (model) => of.serves(model),
    generate: async (request, signal, onSent = () => {}, onAnswered = () => {}) => {
      const asked = await recordable(request);
      if (!records || recording === undefined || of.kind === "job") {
        const found = await recordings.find(asked, signal);
        if (found === null) throw await recordings.missing(asked);
        return found;
      }
      refuseKeys(asked);
      const work = inTurn(recording.queues, asked.key, async () => {
        signal.throwIfAborted();
        const before = await recordings.find(asked, signal);
        if (before !== null) return before;
        const unlock = await lock(recording, sha256Hex(`${place} ${asked.key}`), signal);
        try {
          // Another process may have made it meanwhile.
          const found = await recordings.find(asked, signal);
          if (found !== null) return found;
          const made = await make(recording, of, request, { signal, onSent, onAnswered }).catch(
            async (error) => {
              if (error instanceof ProviderError && error.code === "SAFETY_BLOCKED") {
                const { message: refusal, modelVersion } = error;
                await keep(recordings, recording, asked, { refusal, modelVersion });
                throw new ProviderError(error.code, refusal, { ...error, answer: null });
              }
              throw error;
            },
          );
          await keep(recordings, recording, asked, made);
          if (signal.aborted) await made.discard?.();
          return made;
        } finally {
          unlock();
        }
      });
      return unlessAborted(work, signal);
    },
    close: async () => {
      const running = [...(recording?.queues.values() ?? [])];
      if (running.length > 0) recording?.log.warn("waiting for images to record", { count: running.length });
      await Promise.allSettled(running);
      await of.close();
    },
  };
}

/** Answers that are read from the disk wait for no upstream. */
const REPLAYED_AT_ONCE = 32;

/** What drawings may be asked for. */
const DRAWN: Capabilities = {
  maxReferences: Number.POSITIVE_INFINITY,
  ratios: "any",
  tiers: "any",
  options: ["quality", "background", "seed", "negativePrompt", ...DECISIVE_FIELDS],
};

function factsOf(entry: ReplayEntry, { upstream, serves }: ImageProvider): UpstreamFacts {
  return {
    type: "replay",
    identity: "replay",
    fingerprint: sha256Hex(canonicalJson({ ...entry } as Parameters<typeof canonicalJson>[0])),
    isFree: !entry.records || (upstream?.isFree ?? true),
    isPaidApart: true,
    takes: upstream?.takes ?? DRAWN,
    ...(upstream === undefined && { areDrawings: true }),
    disabled: (entry.records && upstream?.disabled) || null,
    uses: upstream?.uses ?? ["batches", "realtime"],
    // Recordings know the model by our id, whichever upstream made them.
    modelFor: (requested, executed) =>
      (upstream ? upstream.modelFor(requested, executed) !== null : serves(executed)) ? requested : null,
    probe: async (signal) => (entry.records ? upstream?.probe(signal) : undefined),
  };
}

/** Runs the work for a key after all work for it that came before. */
function inTurn<T>(queues: Recording["queues"], key: string, work: () => Promise<T>): Promise<T> {
  const mine = (queues.get(key) ?? Promise.resolve()).then(work);
  const ended = mine
    .catch(() => {})
    .then(() => {
      if (queues.get(key) === ended) queues.delete(key);
    });
  queues.set(key, ended);
  return mine;
}

/** Where nothing can be locked, another process may ask the upstream for the same: `keep` says so. */
async function lock({ log, lock }: Recording, name: string, signal: AbortSignal): Promise<() => void> {
  try {
    return await lock(name, signal);
  } catch (error) {
    signal.throwIfAborted();
    log.debug("a recording is not locked", { error: String(error) });
    return () => {};
  }
}

/**
 * Asks the upstream, when the money is left for it. It stays spent for an image, and when one may have been made. The model
 * of the result is that of the upstream if it named none. A paid request goes on when its caller has gone: the next one who
 * asks gets what it has made.
 */
async function make(
  recording: Recording,
  of: ItemProvider,
  request: ImageRequest,
  {
    signal,
    onSent,
    onAnswered,
  }: { signal: AbortSignal; onSent: () => void; onAnswered: (bytes: number) => void },
): Promise<GeneratedImages> {
  const model = recording.modelFor(of, request.model) ?? request.model;
  const isPaid = of.upstream !== undefined && !of.upstream.isFree;
  const price = isPaid ? recording.priceOf(request) : 0;
  const left = recording.leftMicroUsd;
  if (price === null || price > left) {
    const cost = price === null ? "has no known price" : `costs ${formatUsd(price)}`;
    const message = `The image is not ${IN_REPLAY_DIRECTORY} yet and ${cost}; ${formatUsd(left)} of --max-cost is left. Nothing was sent.`;
    throw notHeld(new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", message));
  }
  recording.leftMicroUsd -= price;
  const hold =
    price === 0
      ? null
      : await recording.hold(request, of.name, price).catch((error: Error) => {
          recording.leftMicroUsd += price;
          throw notHeld(error);
        });
  let isSent = false;
  const sent = () => {
    signal.throwIfAborted();
    onSent();
    isSent = true;
  };
  const answered = (bytes: number) => {
    if (!signal.aborted) onAnswered(bytes);
  };
  const until = isPaid ? new AbortController().signal : signal;
  try {
    // A replay has no words of the upstream: what is recorded answers as it will be replayed.
    const { answer: _, ...made } = await of.generate({ ...request, model }, until, sent, answered);
    await count(recording, hold, made);
    return { ...made, modelVersion: made.modelVersion ?? model };
  } catch (error) {
    const isUnknown = !(error instanceof ProviderError) || error.trouble === "ambiguous";
    if (!isSent || !isUnknown) {
      recording.leftMicroUsd += price;
      await hold?.released();
    }
    throw error;
  }
}

/** The error of an image whose price could not be held, so that nothing was sent. Only money makes the request wrong. */
function notHeld(cause: Error): ProviderError {
  if (cause instanceof ImgbatchError && cause.code === "REALTIME_INSUFFICIENT_BALANCE")
    return new ProviderError("INVALID_ARGUMENT", cause.message, { source: "service", cause });
  const message = `The price of the recording could not be held: ${cause.message.replace(/\.?$/, ".")} Nothing was sent.`;
  return new ProviderError("PROVIDER_ITEM_FAILED", message, { source: "service", retryable: true, cause });
}

/** Counts an image in the budgets. It is paid for: that it cannot be counted is no reason to lose it. */
async function count(
  { log }: Recording,
  hold: RecordingHold | null,
  { images: [first] }: Pick<GeneratedImages, "images">,
): Promise<void> {
  if (hold === null || first === undefined) return;
  try {
    await hold.captured(Buffer.isBuffer(first) ? first : await first.read());
  } catch (error) {
    log.warn("a recorded image could not be counted in the budget", { error: String(error) });
  }
}

/** The image is paid for: that it cannot be kept is no reason to lose it. */
async function keep(
  recordings: Recordings,
  { log }: Recording,
  asked: Recordable,
  answer: Parameters<Recordings["keep"]>[1],
): Promise<void> {
  const file = `${asked.stem}.json`;
  try {
    const kept = await recordings.keep(asked, answer);
    if (kept === "again")
      log.warn("another process has recorded the same meanwhile: the upstream was asked twice", { file });
    if (kept === "unusable")
      log.warn("what the upstream has made is not recorded: it has no image that can be used", { file });
  } catch (error) {
    log.warn("an image could not be recorded", { file, error: String(error) });
  }
}
