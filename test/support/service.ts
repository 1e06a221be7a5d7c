import { expect, onTestFinished } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import type { StoragePlaces } from "../../src/config/storage-places.ts";
import type { BatchObject, ItemObject } from "../../src/contract/batch-api.ts";
import { type BatchStatus, isTerminal } from "../../src/contract/statuses.ts";
import { issueKey, openAccount } from "../../src/domain/accounts.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import type { ImageProvider } from "../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import type { ApiKeyRecord } from "../../src/domain/records.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import type { Log } from "../../src/kernel/log.ts";
import { createLog } from "../../src/service/pino-log.ts";
import {
  type LocalService,
  type Service,
  type ServiceOptions,
  startService,
} from "../../src/service/start-service.ts";
import { type OpenStorage, openStorage } from "../../src/service/storage/open-storage.ts";
import { placesOf, startServices } from "./cluster/shared-services.ts";
import { FakeProvider } from "./fake-provider.ts";
import { gate } from "./gate.ts";
import { putDatabase } from "./made-database.ts";
import { watchText } from "./secrets.ts";
import { tempDir } from "./temp-dir.ts";
import { watchAnswers } from "./watched-answers.ts";

export interface TestService extends LocalService {
  data: string;
  /** Asks the service with the local key; `path` is below `/v1/images/batches`. */
  ask(path: string, init?: RequestInit): Promise<Response>;
  create(body: object, headers?: Record<string, string>): Promise<Response>;
  /** Creates a batch and answers it; fails the test on any other answer. */
  submit(body: object, headers?: Record<string, string>): Promise<BatchObject>;
  batch(id: string): Promise<BatchObject>;
  /** The items of a batch, at most 200. */
  items(id: string): Promise<ItemObject[]>;
  /** Fails the test unless its books agree with all that it keeps. */
  expectBooks(): Promise<void>;
  /** Makes the failed items again, as `ask` does. Throws the error of the answer. */
  retry(id: string): Promise<BatchObject>;
  setPaused(isPaused: boolean): Promise<void>;
  /** Resolves with the batch once it has this status (default: a terminal one). */
  until(id: string, status?: BatchStatus): Promise<BatchObject>;
}

interface TestServiceOptions {
  data?: string;
  config?: object;
  providers?: readonly ImageProvider[];
  clock?: Clock;
  workers?: boolean;
  /** See `LocalServiceOptions`. */
  endsWithCommand?: boolean;
  /** The address that it listens on; default 127.0.0.1. */
  host?: string;
  /** Default: a free one. */
  port?: number;
  /** See `LocalServiceOptions`. */
  isForTests?: boolean;
  /** Filled with what the service logs. */
  logLines?: string[];
}

export const MODEL = "vendorx-3.1-flash-image";

/** The whole service, in a directory of its own; stopped after the test. */
export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const data = options.data ?? (await tempDir());
  await putDatabase(data);
  const service = await startServices({
    config: parseConfig(options.config ?? {}, "test"),
    dataDirectory: data,
    address: { host: options.host ?? "127.0.0.1", port: options.port ?? 0 },
    workers: options.workers ?? true,
    log: watchedLog(options.logLines),
    providers: options.providers ?? [new FakeProvider()],
    random: () => 0.5,
    endsWithCommand: options.endsWithCommand ?? false,
    isForTests: options.isForTests ?? false,
    ...(options.clock ? { clock: options.clock } : {}),
  });
  const unwatch = watchAnswers(service.url);
  let closing: Promise<void> | null = null;
  const close: Service["close"] = (...how) => {
    unwatch();
    closing ??= service.close(...how);
    return closing;
  };
  onTestFinished(() => close(0));

  const ask = (path: string, init: RequestInit = {}) =>
    fetch(`${service.url}/v1/images/batches${path}`, {
      ...init,
      headers: { authorization: `Bearer ${service.credentials.api_key}`, ...init.headers },
    });
  const create = (body: object, headers: Record<string, string> = {}) =>
    ask("", {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
  const batch = async (id: string) => (await (await ask(`/${id}`)).json()) as BatchObject;
  return {
    ...service,
    // With several APIs, each use is the next one's.
    get url() {
      return service.url;
    },
    close,
    data,
    ask,
    create,
    submit: async (body, headers) => {
      const answer = await create(body, headers);
      if (answer.status !== 200) throw new Error(`create answered ${answer.status}: ${await answer.text()}`);
      return (await answer.json()) as BatchObject;
    },
    batch,
    items: async (id) => (await (await ask(`/${id}/items?limit=200`)).json()).data,
    expectBooks: async () => {
      const { stores, blobs } = await openBeside(data);
      expect((await checkInvariants(stores, blobs)).problems).toEqual([]);
    },
    retry: async (id) => {
      const answer = await ask(`/${id}/retry`, { method: "POST" });
      const body = await answer.json();
      if (!answer.ok) throw Object.assign(new Error(body.error.message), { code: body.error.code });
      return body;
    },
    setPaused: async (isPaused) => {
      const headers = { authorization: `Bearer ${service.credentials.api_key}` };
      const method = isPaused ? "POST" : "DELETE";
      const { status } = await fetch(`${service.url}/v1/console/pause`, { method, headers });
      if (status !== 204) throw new Error(`pause answered ${status}`);
    },
    until: async (id, status) => {
      const isThere = (b: { status: BatchStatus }) => (status ? b.status === status : isTerminal(b.status));
      const arrived = gate();
      const unsubscribe = service.feed.subscribe((event) => {
        if (event.type === "batch" && event.batchId === id && isThere(event)) arrived.open();
        // Another process has changed the batch.
        if (event.type === "elsewhere" && event.batchId === id)
          batch(id).then((b) => isThere(b) && arrived.open(), arrived.fail);
      });
      try {
        if (!isThere(await batch(id))) await arrived.promise;
        return await batch(id);
      } finally {
        unsubscribe();
      }
    },
  };
}

/** A service that keeps its data in other places than its directory. It ends with the test. */
export async function startServiceOn(
  storage: StoragePlaces,
  options: Partial<ServiceOptions> = {},
): Promise<Service> {
  const service = await startService({
    config: parseConfig({}, "test"),
    dataDirectory: options.dataDirectory ?? (await tempDir()),
    storage,
    role: "all",
    address: { host: "127.0.0.1", port: 0 },
    workers: true,
    log: watchedLog(),
    providers: [new FakeProvider()],
    ...options,
  });
  let closing: Promise<void> | null = null;
  const close: Service["close"] = (...how) => (closing ??= service.close(...how));
  onTestFinished(() => close(0));
  return { ...service, close };
}

/** Every line that the service would log is made, and searched for secrets. */
export function watchedLog(lines: string[] = []): Log {
  const write = (line: string) => {
    lines.push(line);
    watchText(line, "a log line");
  };
  return createLog({ level: "debug", forPeople: false, write });
}

/** `count` items with prompts and ids of their own. */
export function items(count: number): { custom_id: string; prompt: string }[] {
  return Array.from({ length: count }, (_, i) => ({ custom_id: `i${i + 1}`, prompt: `picture ${i + 1}` }));
}

/** The stores and blobs of a data directory, beside the service that owns it. */
export async function openBeside(data: string): Promise<OpenStorage> {
  await putDatabase(data);
  const open = await openStorage(await placesOf(data), { directory: data });
  onTestFinished(() => open.close());
  return open;
}

interface KeyFacts {
  /** The name of its account, which is opened when there is none. */
  account?: string;
  /** Of the account, when it is opened. */
  balanceMicroUsd?: number;
  group?: string;
  expiresAtMs?: number | null;
  clock?: Clock;
}

/** Issues a key. */
export function openKey(
  stores: Stores,
  { account: name = "default", balanceMicroUsd = 1_000_000, ...facts }: KeyFacts = {},
): Promise<ApiKeyRecord & { key: string }> {
  const { group = "default", expiresAtMs = null, clock = systemClock } = facts;
  const deps = { clock, ids: randomIds };
  return stores.write(async (tx) => {
    const account = await tx.accounts.byName(name);
    const { id: accountId } = account ?? (await openAccount(tx, deps, { name, balanceMicroUsd }));
    return issueKey(tx, deps, { name: "other", accountId, group, expiresAtMs });
  });
}

/** Another key of a running service, of the default account unless another is named. Returns the headers that send it, too. */
export async function otherKey({ data }: Pick<TestService, "data">, facts: KeyFacts = {}) {
  const { stores } = await openBeside(data);
  const { key, id } = await openKey(stores, facts);
  return { key, id, headers: { authorization: `Bearer ${key}` } };
}
