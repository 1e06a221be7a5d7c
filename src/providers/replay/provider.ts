import { realpath } from "node:fs/promises";
import { IN_REPLAY_DIRECTORY } from "../../contract/batch-api.ts";
import type { ReplayEntry } from "../../contract/provider-entries.ts";
import {
  type Capabilities,
  DECISIVE_FIELDS,
  type GeneratedImages,
  type ImageProvider,
  type ImageRequest,
  type ItemProvider,
  ProviderError,
  type UpstreamFacts,
} from "../../domain/ports/image-provider.ts";
import type { Decoding } from "../../imaging/decoding.ts";
import { sharpInspector } from "../../imaging/sharp-images.ts";
import { sha256Hex } from "../../kernel/ids.ts";
import { canonicalJson } from "../../kernel/json.ts";
import type { Log } from "../../kernel/log.ts";
import { formatUsd } from "../../kernel/money.ts";
import { unlessAborted } from "../../kernel/signals.ts";
import type { AdapterDeps } from "../upstream/adapter.ts";
import { type Recordable, Recordings, recordable, refuseKeys } from "./recordings.ts";

/** What asking upstreams for missing images needs. All providers of a service share it. */
export interface Recording {
  /** The money that is left for it, in micro-dollars. A request takes its price out before it is sent. */
  leftMicroUsd: number;
  /** By key: settles when the requests that have come so far are answered. */
  readonly queues: Map<string, Promise<unknown>>;
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
    concurrency: of.concurrency,
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
    throw new ProviderError("INVALID_ARGUMENT", message, { source: "service", upstreamStatus: 402 });
  }
  recording.leftMicroUsd -= price;
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
    return { ...made, modelVersion: made.modelVersion ?? model };
  } catch (error) {
    const isUnknown = !(error instanceof ProviderError) || error.trouble === "ambiguous";
    if (!isSent || !isUnknown) recording.leftMicroUsd += price;
    throw error;
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
