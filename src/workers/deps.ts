import type { UnknownOutcome } from "../contract/limits.ts";
import type { groupFinishes } from "../domain/batches/finish-item.ts";
import type { Feed } from "../domain/feed.ts";
import type { Uploads } from "../domain/files/uploads.ts";
import type { ProviderHealth } from "../domain/health/provider-health.ts";
import type { TakeInDeps } from "../domain/jobs/take-in.ts";
import type { ModelEntry, Offers } from "../domain/models.ts";
import type { BlobStore } from "../domain/ports/blob-store.ts";
import type { ImageInspector } from "../domain/ports/image-inspector.ts";
import type { ImageProvider } from "../domain/ports/image-provider.ts";
import type { Stores } from "../domain/ports/stores.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Ids } from "../kernel/ids.ts";
import type { Log } from "../kernel/log.ts";
import type { GoingOn } from "./going-on.ts";
import type { Presence } from "./presence.ts";

export interface WorkerDeps extends Pick<TakeInDeps, "limits" | "lineReaders"> {
  stores: Stores;
  blobs: BlobStore;
  finishes: ReturnType<typeof groupFinishes>;
  inspector: ImageInspector;
  models: readonly ModelEntry[];
  /** The providers that are used for batches, in order of preference. */
  providers: readonly ImageProvider[];
  /** The same providers by what they serve. */
  offers: Offers;
  health: ProviderHealth;
  /** How long an item waits for an upstream that cannot be used, in ms. */
  outageMs: number;
  /** Whether a paid request whose answer was lost is sent once more. */
  unknownOutcome: UnknownOutcome;
  clock: Clock;
  ids: Ids;
  /** From 0 up to 1; spreads retries. */
  random: () => number;
  feed: Feed;
  log: Log;
  /** How long outputs are kept after a batch has ended, in ms; 0 keeps them. */
  outputRetentionMs: number;
  /** This process, as others see it. */
  presence: Presence;
  /** Which batches may be worked on here. */
  goingOn: GoingOn;
  /** Aborted when the process is about to stop: then no work is begun, and what runs goes on until the stop. */
  ending: AbortSignal;
  /** Files on their way into the service. */
  uploads: Uploads;
}
