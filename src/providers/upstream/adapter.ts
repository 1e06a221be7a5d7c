import type { UpstreamEntry } from "../../contract/provider-entries.ts";
import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import type { Capabilities, GeneratedImages, ImageRequest } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";

/**
 * Translates between the port and one kind of upstream. Everything that all upstreams share is done around it, in
 * `item-provider.ts`: time limits, rates, sizes, model ids, hidden keys.
 */
export interface UpstreamAdapter {
  /** Where the upstream is: with the type, its identity. */
  address: string;
  takes: Capabilities;
  /**
   * Makes the images of one request. `request.model` is the id that the upstream knows, and `request.size` the pixels to
   * ask for. No reference of it is kept elsewhere. Calls `onSent` and `onAnswered` like `ItemProvider`. Rejects with `ProviderError`, or with the signal's reason.
   */
  generate(
    request: ImageRequest,
    signal: AbortSignal,
    onSent: () => void,
    onAnswered?: (bytes: number) => void,
  ): Promise<GeneratedImages>;
  /** Asks for something that costs nothing. Rejects with `ProviderError` when the upstream cannot be used. */
  probe(signal: AbortSignal): Promise<void>;
  /** Frees sockets and processes. */
  close(): Promise<void>;
}

export interface AdapterDeps {
  clock: Clock;
  /** Begins a file for a large image. Left out: all images are in memory. */
  draft?(): BlobDraft;
  /** Returns the value of an environment variable; null when it is not set or empty. */
  secret(name: string): string | null;
}

/** The header that carries the key of an entry; none without a key. */
export function credentialHeaders(
  entry: UpstreamEntry,
  { secret }: Pick<AdapterDeps, "secret">,
): Readonly<Record<string, string>> {
  const key = "apiKeyEnv" in entry && entry.apiKeyEnv !== null ? secret(entry.apiKeyEnv) : null;
  if (key === null) return {};
  if ("keyHeader" in entry) return { [entry.keyHeader]: key };
  return "auth" in entry && entry.auth !== "bearer"
    ? { [entry.auth]: key }
    : { authorization: `Bearer ${key}` };
}
