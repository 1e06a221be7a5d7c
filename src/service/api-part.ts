import { randomBytes } from "node:crypto";
import { chmod, readFile, rm, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { Role } from "../config/roles.ts";
import type { Config } from "../config/schema.ts";
import type { StoragePlaces } from "../config/storage-places.ts";
import { signInUrl } from "../contract/console-api.ts";
import {
  type Credentials,
  DATA_FILES,
  isProceduralOnly,
  parseCredentials,
  type ServerFile,
} from "../contract/data-directory.ts";
import { ImgbatchError } from "../contract/errors.ts";
import { FIXED_LIMITS } from "../contract/limits.ts";
import { ensureDefaultAccount, issueKey, openRealAccount, type Scope, topUp } from "../domain/accounts.ts";
import type { Feed } from "../domain/feed.ts";
import { Thumbnails } from "../domain/images/thumbnails.ts";
import type { Stores } from "../domain/ports/stores.ts";
import { Realtime } from "../domain/realtime/realtime.ts";
import { sharpConverter } from "../imaging/sharp-images.ts";
import { thumbnail } from "../imaging/thumbnail.ts";
import type { Clock } from "../kernel/clock.ts";
import { writeFileDurably } from "../kernel/files.ts";
import { type Ids, sha256Hex } from "../kernel/ids.ts";
import { type Log, silentLog } from "../kernel/log.ts";
import { packageFile } from "../kernel/package-file.ts";
import { tracer } from "../kernel/tracing.ts";
import { pixelsNamed } from "../providers/catalogue/catalogue.ts";
import { identitiesOf } from "../providers/registry.ts";
import { buildApp } from "../server/app.ts";
import { EventHub } from "../server/console/event-hub.ts";
import type { ApiDeps } from "../server/deps.ts";
import { DownloadSlots, FailedAuthLimit } from "../server/http/limits.ts";
import { consoleSecrets } from "../server/http/secrets.ts";
import { listen } from "../server/listen.ts";
import { BodyBudgets } from "../server/request-body/body-budgets.ts";
import { generatedFiles } from "../server/surfaces.ts";
import { TestBench } from "../server/testing/test-bench.ts";
import { runAll, type Workers, workOfAll } from "./workers-part.ts";

/** How programs on this machine use the service of a data directory. */
interface LocalAccess {
  /** Path of the file with the key. */
  credentialsFile: string;
  credentials: Credentials;
  /** The id of the key in `credentialsFile`. Whoever has this key sees the whole service. Null: there is none. */
  ownerKeyId: string | null;
  /** The same key, where it can carry the consent of the person at this machine. */
  localKeyId: string | null;
  /** Removes the file by which programs find the service. */
  close(): Promise<void>;
}

interface AccessOptions {
  config: Config;
  dataDirectory: string;
  /** See `LocalServiceOptions`. The file with the key does not name the address of such a service. */
  endsWithCommand?: boolean;
  budgetMicroUsd?: number | undefined;
  facts: Pick<ServerFile, "url" | "workers" | "providers" | "secret" | "ends_with_command">;
}

/** Writes the files by which programs on this machine find the service, with its key. */
async function openLocalAccess(
  options: AccessOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
): Promise<LocalAccess> {
  const { stores, clock } = deps;
  const { dataDirectory, budgetMicroUsd, facts } = options;
  const credentials = await ensureCredentials(options, deps);
  const key = await stores.read.keys.bySha256(sha256Hex(credentials.api_key));
  if (key && budgetMicroUsd) {
    await stores.write(async (tx) => {
      const { id } = await openRealAccount(tx, deps, key.accountId);
      await topUp(tx, deps, id, budgetMicroUsd);
    });
  }
  await writeServerFile(dataDirectory, facts, clock);
  return {
    credentialsFile: join(dataDirectory, DATA_FILES.credentials),
    credentials,
    ownerKeyId: key?.id ?? null,
    localKeyId: key && budgetMicroUsd === undefined ? key.id : null,
    close: () => removeServerFile(dataDirectory, facts.secret),
  };
}

/**
 * Returns the key for clients on this machine. The first start makes it, with the default account. Throws `INVALID_CONFIG` when
 * the file with the key is damaged or cannot be read.
 */
async function ensureCredentials(
  { config, dataDirectory, endsWithCommand = false, facts: { url } }: AccessOptions,
  deps: { stores: Stores; clock: Clock; ids: Ids; log: Log },
): Promise<Credentials> {
  const path = join(dataDirectory, DATA_FILES.credentials);
  const known = await readFile(path, "utf8").then(
    (text) => credentialsIn(path, text),
    (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw new ImgbatchError("INVALID_CONFIG", `${path} cannot be read (${error.code}).`, { cause: error });
    },
  );
  await closeToOthers(path, deps.log);
  const isKnownHere =
    known !== null && (await deps.stores.read.keys.bySha256(sha256Hex(known.api_key))) !== null;
  if (isKnownHere && (known.base_url === url || endsWithCommand)) return known;
  const api_key = isKnownHere ? known.api_key : await makeFirstKey(config, deps);
  const credentials = { base_url: url, api_key };
  await writeFileDurably(path, `${JSON.stringify(credentials, null, 2)}\n`, { mode: 0o600 });
  return credentials;
}

/** A copy or a restored backup can have a key file that every user of the machine reads. */
async function closeToOthers(path: string, log: Log): Promise<void> {
  if (process.platform === "win32") return;
  const facts = await stat(path).catch(() => null);
  if (facts === null || (facts.mode & 0o077) === 0) return;
  const isClosed = await chmod(path, 0o600).then(
    () => true,
    () => false,
  );
  const what = isClosed ? "could be read by others; it is closed to them now" : "can be read by others";
  log.warn(`the file with the key ${what}`, { file: DATA_FILES.credentials });
}

function credentialsIn(path: string, text: string): Credentials {
  try {
    return parseCredentials(text);
  } catch (cause) {
    const message = `${path} is damaged. Delete it to get a new key; batches belong to the key that made them.`;
    throw new ImgbatchError("INVALID_CONFIG", message, { cause });
  }
}

async function makeFirstKey(
  config: Config,
  deps: { stores: Stores; clock: Clock; ids: Ids },
): Promise<string> {
  const { key } = await deps.stores.write(async (tx) => {
    const account = await ensureDefaultAccount(tx, deps, isProceduralOnly(config));
    const group = config.groups[0]?.name ?? "default";
    return issueKey(tx, deps, { name: "local", accountId: account.id, group, expiresAtMs: null });
  });
  return key;
}

/** Writes `server.json`, by which commands find the service of a data directory. */
async function writeServerFile(
  directory: string,
  facts: AccessOptions["facts"],
  clock: Clock,
): Promise<void> {
  const started_at = Math.floor(clock.nowMs() / 1000);
  const file: ServerFile = { ...facts, pid: process.pid, started_at };
  await writeFileDurably(join(directory, DATA_FILES.server), `${JSON.stringify(file)}\n`, { mode: 0o600 });
}

/** Removes `server.json`, unless it is that of another service, which took over a directory whose files were replaced. */
async function removeServerFile(directory: string, secret: string): Promise<void> {
  const path = join(directory, DATA_FILES.server);
  const text = await readFile(path, "utf8").catch(() => "");
  if (text.includes(secret)) await rm(path, { force: true });
}

/** How long a request to cancel a batch waits for the end of what has left. The batch is cancelled all the same. */
const CANCEL_ANSWER_MS = 20_000;

/** The build of the web console, also when the service runs from its source. */
const CONSOLE_DIRECTORY = packageFile("dist/console");

interface ApiOptions extends Omit<AccessOptions, "facts"> {
  address: { host: string; port: number };
  role: Role;
  storage: StoragePlaces;
  workers: Workers;
  /** Whether this process makes images of batches. */
  withWorkers: boolean;
  /** Whether others may have the same database. */
  isShared: boolean;
  /** Whether the lines of requests go to the feed alone. */
  isFeedOnly: boolean;
  /** See `LocalServiceOptions`. */
  isForTests?: boolean;
}

/** The API for the live view of a process. With its key, it shows and manages the batches of all keys. */
export interface LiveView {
  baseUrl: string;
  apiKey: string;
  startedAtMs: number;
  /** The names of the providers; null when there are none. */
  providers: string | null;
}

/** The HTTP side of a process, listening. */
interface Api {
  url: string;
  /** Null with a shared database. */
  access: LocalAccess | null;
  /** Makes a new link to sign in to the console with; null where there is no console. */
  signInLink: (() => Promise<string>) | null;
  /** See `Service`. */
  openLiveView(): Promise<LiveView>;
  /** Stops accepting requests, and gives those that run the time to end. */
  close(graceMs: number): Promise<void>;
}

/** Recorded answers cost nothing and ask nobody: nothing is spared by making a client wait. */
const UNLIMITED = { requestsPerMinute: 0, concurrentRequests: 0 };

const isReplayed = ({ providers }: Config) =>
  providers.length > 0 && providers.every((entry) => entry.type === "replay" && !entry.records);

/** Takes requests for a process, and writes the files by which programs on this machine find it. */
export async function openApi(options: ApiOptions): Promise<Api> {
  const { config, role, address, storage, dataDirectory, workers, withWorkers, isShared } = options;
  const { scheduler, providers } = workers;
  const { stores, blobs, clock, feed, log, presence, ending, goingOn } = workers.deps;
  const realtime = new Realtime({
    ...workers.deps,
    offers: workers.realtimeOffers,
    timeoutMs: config.limits.realtimeTimeoutSeconds * 1000,
    rate: isReplayed(config) ? UNLIMITED : config.limits,
  });
  const workersRunning = () =>
    (scheduler.isRunning && presence.isFresh) || (role !== "worker" && presence.hasWorkers);
  const { acceptWithoutWorkers } = config.features;
  // A command that only reads its own data shows no batch as waiting: the next one has workers.
  const reportsWorkers = isShared || acceptWithoutWorkers;
  const secret = randomBytes(32).toString("base64url");
  let access: LocalAccess | null = null;
  const deps: ApiDeps = {
    testBench: options.isForTests ? new TestBench() : null,
    ...workers.deps,
    ...derivedOf(options),
    ...workOfAll(workers.deps, () => reportsWorkers && !workersRunning()),
    realtime,
    secret,
    pixelsNamed,
    operatorToken: null,
    setPaused: (isPaused) => scheduler.setPaused(isPaused),
    resumeProvider: workers.resumeProvider,
    scopeOf: (keyId) => ({
      keys: "own",
      isOwner: keyId === access?.ownerKeyId,
      mayPay: keyId === access?.localKeyId,
    }),
    facts: { dataDirectory, startedAtMs: clock.nowMs() },
    requestLog: options.isFeedOnly ? silentLog : log,
    hasWorkers: withWorkers,
    workersRunning,
    takesBatches: async () => {
      if (acceptWithoutWorkers || workersRunning()) return true;
      // One may have begun since the last heartbeat.
      return isShared && (await stores.read.workers.list()).some((worker) => worker.role !== "api");
    },
    freeDiskBytes: async () => {
      const { bavail, bsize } = await statfs(dataDirectory);
      return bavail * bsize;
    },
    askBucket: storage.blobs.kind === "s3" ? () => blobs.list("ready/") : null,
    isStopping: () => ending.aborted,
    goesOn: goingOn.kind,
    goOn: async (batchId, isLease) => {
      await scheduler.goOn(batchId, isLease);
      workers.notifyOthers();
    },
    stopGoing: (batchId) => goingOn.leave(batchId),
    cancel: (batchId) => {
      const answer = new AbortController();
      const cancelled = scheduler.cancel(batchId, workers.notifyOthers).finally(() => answer.abort());
      cancelled.catch((error) => log.warn("a batch was cancelled with trouble", { error: String(error) }));
      // What has left for a paid upstream may take minutes.
      return Promise.race([cancelled, clock.sleep(CANCEL_ANSWER_MS, answer.signal).catch(() => cancelled)]);
    },
    endJobs: (batchId) => scheduler.endJobs(batchId, workers.notifyOthers),
    onBatchCreated: (batch) => {
      tracer.note({ "imgbatch.batch.id": batch.id });
      feed.publish({ type: "batch", batchId: batch.id, status: "queued" });
      goingOn.begin(batch.id);
      scheduler.wake(batch.id);
      workers.notifyOthers();
    },
  };
  const app = buildApp(deps, { isWorker: role === "worker" });
  const listening = await listen(app, address, { log });
  let closeLiveView = async () => {};
  const close = (graceMs: number) =>
    runAll(
      () => closeLiveView(),
      () => access?.close(),
      () => deps.events.close(),
      async () => {
        const startMs = clock.monotonicMs();
        await listening.close(graceMs, () => realtime.stop());
        // Requests with an idempotency key may be at work whose callers have left.
        await realtime.stop(Math.max(0, graceMs - (clock.monotonicMs() - startMs)));
      },
    );
  const { url } = listening;
  try {
    if (!isShared) {
      const identities = identitiesOf(config.providers, providers);
      const ends = options.endsWithCommand ? { ends_with_command: true } : {};
      const facts = { url, workers: withWorkers, ...ends, providers: identities, secret };
      access = await openLocalAccess({ ...options, facts }, workers.deps);
    }
  } catch (error) {
    await close(0).catch(() => {});
    throw error;
  }
  const keyId = access?.ownerKeyId ?? null;
  const signInLink = async () =>
    signInUrl(
      config.server.publicUrl ?? url,
      (await deps.secrets.codes.issue({ keyId: keyId ?? "" })).secret,
    );
  const hasConsole = config.features.console && keyId !== null;
  const openLiveView = async () => {
    const operatorToken = randomBytes(32).toString("base64url");
    const scope: Scope = { keys: "all", isOwner: true, mayPay: false };
    const view = buildApp(
      { ...deps, testBench: null, operatorToken, scopeOf: () => scope },
      { isWorker: false },
    );
    const opened = await listen(view, { host: "127.0.0.1", port: 0 });
    const unsubscribe = logFailures(feed, log, stores);
    closeLiveView = async () => {
      unsubscribe();
      await opened.close(0);
    };
    const names = providers.map(({ name }) => name).join(", ") || null;
    const { startedAtMs } = deps.facts;
    return { baseUrl: opened.url, apiKey: operatorToken, startedAtMs, providers: names };
  };
  return { url, access, signInLink: hasConsole ? signInLink : null, openLiveView, close };
}

/** The parts of the API that follow from the configuration and the workers. */
function derivedOf({ config, address, workers: { deps, decoding, realtimeOffers } }: ApiOptions) {
  const { stores, blobs, clock } = deps;
  return {
    consoleDirectory: CONSOLE_DIRECTORY,
    secrets: consoleSecrets({ stores, clock }),
    events: new EventHub(deps),
    thumbnails: new Thumbnails({
      stores,
      blobs,
      shrink: (bytes, edgePx) => thumbnail(bytes, edgePx, decoding, { keepsAlpha: true }),
    }),
    thumbnailSlots: new DownloadSlots(FIXED_LIMITS.thumbnailsPerKey),
    server: { ...config.server, host: address.host },
    groups: config.groups,
    limits: config.limits,
    features: config.features,
    keyHeaders: config.vendor.keyHeaders,
    modelNames: config.openai.models,
    converter: sharpConverter(decoding),
    realtimeOffers,
    slots: new DownloadSlots(config.limits.downloadsPerKey),
    bodyBudgets: new BodyBudgets(),
    failedAuth: new FailedAuthLimit(config.limits.failedAuthPerMinute, clock, {
      countsLoopback: config.server.trustProxy !== false,
    }),
    findGeneratedFile: generatedFiles({ stores, blobs }),
  };
}

/** A person could not read more in a second. */
const FAILURES_AT_ONCE = 10;

/** Writes a line to the log for each image that could not be made. Returns the function that stops it. */
function logFailures(feed: Feed, log: Log, { read }: Stores): () => void {
  let atWork = 0;
  const tell = async (batchId: string, customId: string) => {
    if (atWork >= FAILURES_AT_ONCE) return;
    atWork++;
    try {
      const [item, batch] = [
        await read.items.byCustomId(batchId, customId),
        await read.batches.byId(batchId),
      ];
      if (item?.error == null) return;
      const { code, message } = item.error;
      log.warn(`${customId} failed, ${code}: ${message} (“${batch?.taskName ?? batchId}”)`);
    } finally {
      atWork--;
    }
  };
  return feed.subscribe((event) => {
    const failed =
      event.type === "elsewhere"
        ? event.failed
        : event.type === "item" && event.status === "failed"
          ? [event.customId]
          : [];
    for (const customId of failed) if ("batchId" in event) tell(event.batchId, customId).catch(() => {});
  });
}
