import type { BlobDraft } from "../../domain/ports/blob-store.ts";
import type { Capabilities, GeneratedImages, ImageRequest } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";

/**
 * Translates between the port and one kind of upstream. Everything that all upstreams share is done around it, in
 * `provider.ts`: time limits, rates, sizes, model ids, hidden keys.
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

/** The header by which an upstream makes an image once, however often it is asked; none where it has no such header. */
export function repeatHeader(
  { idempotencyKey }: { idempotencyKey: string | null },
  { repeatKey }: Pick<ImageRequest, "repeatKey">,
): Readonly<Record<string, string>> {
  return idempotencyKey === null || repeatKey === undefined ? {} : { [idempotencyKey]: repeatKey };
}

/** The header that carries the key of an entry; none without a key. `auth`: "bearer", or the name of the header. */
export function credentialHeaders(
  entry: { name: string; apiKeyEnv?: string | null; keyHeader?: string; auth?: string },
  { secret }: Pick<AdapterDeps, "secret">,
): Readonly<Record<string, string>> {
  const { apiKeyEnv = null, auth = "bearer", keyHeader = auth } = entry;
  const key = apiKeyEnv === null ? null : secret(apiKeyEnv);
  if (key === null) return {};
  return keyHeader === "bearer" ? { authorization: `Bearer ${key}` } : { [keyHeader]: key };
}
