import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { LOCAL_STORAGE, type StoragePlaces } from "../../../src/config/storage-places.ts";
import { isProceduralOnly } from "../../../src/contract/data-directory.ts";
import { issueKey, openAccount } from "../../../src/domain/accounts.ts";
import { isPaid } from "../../../src/domain/models.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import {
  type LocalService,
  type LocalServiceOptions,
  type Service,
  startService,
} from "../../../src/service/start-service.ts";
import { openStorage } from "../../../src/service/storage/open-storage.ts";
import { HEARTBEAT_MS } from "../../../src/workers/presence.ts";
import { startFakeS3 } from "../fake-s3.ts";
import { TEST_STORES } from "./test-stores.ts";

/**
 * How long the processes of one database sleep in order to know of each other: between two beats, two looks, two pings
 * and two tries to connect. No test moves its clock for these.
 */
const BETWEEN_PROCESSES_MS = new Set([HEARTBEAT_MS, 200, 3000, 50]);

/**
 * The clock of a test, on which all sleep but those that keep a process alive to the others. These go by the clocks of
 * the database and of other processes, which no test moves.
 */
function passing(clock: Clock): Clock {
  return {
    nowMs: () => clock.nowMs(),
    monotonicMs: () => clock.monotonicMs() + systemClock.monotonicMs(),
    // More often: after a jump of the clock a process begins nothing before its next beat.
    sleep: (ms, signal) =>
      BETWEEN_PROCESSES_MS.has(ms) ? systemClock.sleep(ms / 10, signal) : clock.sleep(ms, signal),
  };
}

/** The workers come first: an API takes no batch before it has seen one. */
const ROLES = ["worker", "worker", "worker", "api", "api"] as const;
const BALANCE_MICRO_USD = 1_000_000_000;

const places = new Map<string, Promise<StoragePlaces>>();

/** Where the data of a test's directory is kept, for all services that the test starts on it. */
export function placesOf(data: string): Promise<StoragePlaces> {
  if (TEST_STORES === "local") return Promise.resolve(LOCAL_STORAGE);
  const known = places.get(data);
  if (known !== undefined) return known;
  const made = makePlaces();
  places.set(data, made);
  onTestFinished(() => void places.delete(data));
  return made;
}

async function makePlaces(): Promise<StoragePlaces> {
  const { newDatabase } = await import("../postgres.ts");
  const database = { kind: "postgres" as const, url: await newDatabase(), name: "postgres" };
  if (TEST_STORES === "postgres") return { database, blobs: LOCAL_STORAGE.blobs };
  const s3 = await startFakeS3();
  onTestFinished(() => s3.close());
  const { bucket, region, credentials, url: endpoint } = s3;
  const place = { bucket, region, endpoint, prefix: "test", sessionToken: null, name: "s3" };
  return { database, blobs: { kind: "s3", ...place, ...credentials } as StoragePlaces["blobs"] };
}

/** Starts a service, or as many as `TEST_STORES` says, that tests use like one on a data directory. */
export async function startServices(options: LocalServiceOptions): Promise<LocalService> {
  if (TEST_STORES === "local") return startService(options);
  const storage = await placesOf(options.dataDirectory);
  const credentials = { base_url: "", api_key: await keyOf(options, storage) };
  const parts: Service[] = [];
  for (const [i, role] of (TEST_STORES === "cluster" ? ROLES : (["all"] as const)).entries()) {
    const dataDirectory =
      TEST_STORES === "cluster" ? join(options.dataDirectory, `${role}-${i}`) : options.dataDirectory;
    await mkdir(dataDirectory, { recursive: true });
    const clock = options.clock && passing(options.clock);
    parts.push(await startService({ ...options, ...(clock ? { clock } : {}), dataDirectory, storage, role }));
  }
  const apis = parts.slice(-2);
  const [first] = apis;
  if (first === undefined) throw new Error("no service was started");
  let asked = 0;
  return {
    ...first,
    credentials,
    credentialsFile: join(options.dataDirectory, "credentials.json"),
    get url() {
      return apis[asked++ % apis.length]?.url ?? first.url;
    },
    close: async (graceMs) => {
      await Promise.all(parts.map((part) => part.close(graceMs)));
    },
  };
}

const keys = new Map<string, string>();

/**
 * The key of the default account, which has play money where a new data directory has it, and real money for upstreams:
 * consent in requests does not count with a shared database.
 */
async function keyOf(
  { dataDirectory: data, config, providers = [] }: LocalServiceOptions,
  storage: StoragePlaces,
): Promise<string> {
  const known = keys.get(data);
  if (known !== undefined) return known;
  const { stores, close } = await openStorage(storage, { directory: data });
  const deps = { clock: systemClock, ids: randomIds };
  const { key } = await stores.write(async (tx) => {
    const facts = {
      balanceMicroUsd: BALANCE_MICRO_USD,
      isPlay: isProceduralOnly(config) && !providers.some(isPaid),
    };
    const account = await openAccount(tx, deps, { name: "default", ...facts });
    return issueKey(tx, deps, { name: "local", accountId: account.id, group: "default", expiresAtMs: null });
  });
  await close();
  keys.set(data, key);
  onTestFinished(() => void keys.delete(data));
  return key;
}
