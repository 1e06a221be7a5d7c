import { DEFAULT_LIMITS, FIXED_LIMITS } from "../../src/contract/limits.ts";
import { groupFinishes } from "../../src/domain/batches/finish-item.ts";
import { Feed } from "../../src/domain/feed.ts";
import { Uploads } from "../../src/domain/files/uploads.ts";
import { ProviderHealth } from "../../src/domain/health/provider-health.ts";
import { Offers } from "../../src/domain/models.ts";
import type { BlobStore } from "../../src/domain/ports/blob-store.ts";
import type { ImageProvider } from "../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import type { WorkerDeps } from "../../src/workers/deps.ts";
import { GoingOn } from "../../src/workers/going-on.ts";
import { Alone, Cluster } from "../../src/workers/presence.ts";
import type { FakeClock } from "./fake-clock.ts";

/** Everything that the workers of one process use, which has joined. */
export async function workerDepsOf({
  stores,
  blobs,
  clock,
  providers,
  isAlone,
}: {
  stores: Stores;
  blobs: BlobStore;
  clock: FakeClock;
  providers: readonly ImageProvider[];
  isAlone: boolean;
}): Promise<WorkerDeps> {
  const facts = { role: "all", version: "1", providers: providers.map(({ name }) => name) } as const;
  const presence = new (isAlone ? Alone : Cluster)({ stores, clock, ids: randomIds, log: silentLog }, facts);
  await presence.join();
  const goingOn = new GoingOn({ stores, clock, log: silentLog }, "always");
  return {
    goingOn,
    stores,
    blobs,
    finishes: groupFinishes(stores),
    clock,
    providers,
    presence,
    ending: new AbortController().signal,
    inspector: sharpInspector(new Decoding()),
    models: [],
    offers: new Offers(providers, []),
    outageMs: 1,
    unknownOutcome: "stop",
    ids: randomIds,
    random: () => 0.5,
    feed: new Feed(),
    log: silentLog,
    outputRetentionMs: 0,
    limits: DEFAULT_LIMITS,
    lineReaders: {},
    uploads: new Uploads({ stores, blobs, clock }, { ...FIXED_LIMITS, ...DEFAULT_LIMITS }),
    health: new ProviderHealth({ clock, log: silentLog }, providers),
  };
}
