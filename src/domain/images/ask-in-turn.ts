import type { Log } from "../../kernel/log.ts";
import type { Permit } from "../health/provider-health.ts";
import { isPaid, mayBePaidTwice, type Offer } from "../models.ts";
import { StorageUnavailable } from "../ports/blob-store.ts";
import {
  type GeneratedImages,
  type ItemProvider,
  type LargeImage,
  ProviderError,
} from "../ports/image-provider.ts";
import type { MadeImage } from "./output-images.ts";

/** A provider that is asked next, with the permission to ask it once. */
export interface Turn {
  offer: Offer<ItemProvider>;
  permit: Permit;
}

/**
 * What a failure means for the image that was asked for.
 * - `final`: the request is refused, or is wrong, or its task has ended without an image. No other provider is asked.
 * - `nothing`: nothing was made, and the request is not at fault.
 * - `lost`: the request was sent, and no usable answer came back. The image may have been made and paid.
 * - `task`: the upstream still works on the image. Asking for its task again costs nothing.
 */
type Meaning = "final" | "nothing" | "lost" | "task";

/** Returns what a failure means. `hasTask`: an upstream has begun the image as a task, whose end is not known. */
function meaningOf({ trouble, retryable }: ProviderError, hasTask: boolean): Meaning {
  if (trouble === null || !retryable) return "final";
  if (hasTask) return "task";
  return trouble === "ambiguous" ? "lost" : "nothing";
}

/** Why a paid request whose answer was lost is not sent again. A person decides. */
export const NOT_AGAIN = "It is not asked for again, because it may be paid already.";

/** A provider that made no image, and why. */
export interface FailedTurn {
  kind: "failed";
  turn: Turn;
  error: ProviderError;
  meaning: Meaning;
}

/** What came of asking. `aborted`: the signal ended it, perhaps after a request had left. */
export type Asked<Image extends AnyImage = AnyImage> =
  | { kind: "made"; turn: Turn; made: GeneratedImages<MadeImage<Image>> }
  | FailedTurn
  | { kind: "aborted"; turn: Turn };

type AnyImage = Buffer | LargeImage;

/** One image that providers are asked for. */
interface Asking<Image extends AnyImage> {
  /** The work, for the health of its providers. */
  id: string;
  signal: AbortSignal;
  /** Asks the provider of a turn. What it rejects with while the signal is aborted does not matter. */
  ask(turn: Turn): Promise<GeneratedImages>;
  /** Decodes what the provider made. The result is `made` even when the signal is aborted meanwhile. */
  read(turn: Turn, output: GeneratedImages): Promise<GeneratedImages<MadeImage<Image>>>;
  /** Whether the request of the present turn has left. */
  isSent(): boolean;
  /** Whether an upstream has begun the image as a task, whose end is not known. */
  hasTask(): boolean;
  /** Takes note of each failure, before the next turn is asked for. */
  onFailed?(failed: FailedTurn): void;
}

/**
 * Asks providers for one image, one after the other, until one has made it, and tells their health how each turn ended. The next
 * turn is taken only where that cannot be paid twice: nothing was made, or the upstream makes an image once however often it
 * is asked. An item of a batch has one turn here, because the next claim decides who is asked next.
 *
 * Returns the last failure when the turns end: that of a request whose answer was lost, else the first. Returns null when
 * there was no turn. Rejects with `StorageUnavailable` when the storage fails before a request has left.
 */
export async function askInTurn<Image extends AnyImage = AnyImage>(
  { log }: { log: Log },
  turns: Iterable<Turn> | AsyncIterable<Turn>,
  asking: Asking<Image>,
): Promise<Asked<Image> | null> {
  let failed: FailedTurn | null = null;
  for await (const turn of turns) {
    const asked = await askOnce(log, turn, asking);
    if (asked.kind !== "failed") return asked;
    asking.onFailed?.(asked);
    const { provider } = turn.offer;
    const isMadeOnce = asked.meaning === "lost" && isPaid(provider) && !mayBePaidTwice(provider);
    if (asked.meaning !== "nothing" && !isMadeOnce) return asked;
    if (failed === null || isMadeOnce) failed = asked;
  }
  return failed;
}

async function askOnce<Image extends AnyImage>(
  log: Log,
  turn: Turn,
  asking: Asking<Image>,
): Promise<Asked<Image>> {
  const { offer, permit } = turn;
  const { id, signal, isSent, hasTask } = asking;
  const output = await asking.ask(turn).catch((cause: unknown) => ({ cause }));
  if (signal.aborted) {
    permit.dropped();
    if (!("cause" in output)) await output.discard?.();
    return { kind: "aborted", turn };
  }
  const made = "cause" in output ? output : await readOrFree(turn, output, asking);
  if (!("cause" in made)) {
    permit.succeeded();
    return { kind: "made", turn, made };
  }
  if (made.cause instanceof StorageUnavailable && !isSent()) {
    permit.dropped();
    throw made.cause;
  }
  const error = failureOf(log, made.cause, offer.provider, isSent());
  permit.failed(error, id);
  return { kind: "failed", turn, error, meaning: meaningOf(error, hasTask()) };
}

async function readOrFree<Image extends AnyImage>(
  turn: Turn,
  output: GeneratedImages,
  { read }: Asking<Image>,
): Promise<GeneratedImages<MadeImage<Image>> | { cause: unknown }> {
  try {
    return await read(turn, output);
  } catch (cause) {
    await output.discard?.();
    return { cause };
  }
}

function failureOf(log: Log, cause: unknown, { upstream }: ItemProvider, isSent: boolean): ProviderError {
  if (cause instanceof ProviderError) return cause;
  log.error("provider failed unexpectedly", { error: String(cause) });
  return new ProviderError("PROVIDER_ITEM_FAILED", "The provider failed.", {
    cause,
    retryable: true,
    trouble: upstream ? (isSent ? "ambiguous" : "failing") : null,
    upstreamStatus: 500,
  });
}
