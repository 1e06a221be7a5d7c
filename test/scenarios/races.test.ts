import { join } from "node:path";
import pg from "pg";
import { describe, expect, it, onTestFinished } from "vitest";
import { ImgbatchError } from "../../src/contract/errors.ts";
import { isTerminal } from "../../src/contract/statuses.ts";
import { topUp } from "../../src/domain/accounts.ts";
import type { CheckedRequest } from "../../src/domain/batches/checked-request.ts";
import { createBatch } from "../../src/domain/batches/create-batch.ts";
import { dropOutputs } from "../../src/domain/batches/delete.ts";
import {
  cancelBatch,
  processResults,
  settleBatch,
  startProcessing,
} from "../../src/domain/batches/end-batch.ts";
import { failItem, finishItem, groupFinishes } from "../../src/domain/batches/finish-item.ts";
import { startBatch } from "../../src/domain/batches/lifecycle.ts";
import { checkInvariants } from "../../src/domain/check-invariants.ts";
import { Feed } from "../../src/domain/feed.ts";
import { Offers } from "../../src/domain/models.ts";
import type { BlobStore } from "../../src/domain/ports/blob-store.ts";
import { DEFAULT_OPTIONS } from "../../src/domain/ports/image-provider.ts";
import type { Stores } from "../../src/domain/ports/stores.ts";
import { endHold, openHold, releaseDeadHolds } from "../../src/domain/realtime/holds.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { silentLog } from "../../src/kernel/log.ts";
import { fileBlobs } from "../../src/storage/blobs/file-blobs.ts";
import { openPostgres } from "../../src/storage/dialects/postgres.ts";
import { sqlStores } from "../../src/storage/stores.ts";
import { seededRandom } from "../soak/random.ts";
import { groupEntry, imageFacts, modelEntry } from "../support/entries.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { openKey } from "../support/service.ts";
import { joinAs } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";

/** A statement that takes longer waits for a lock: the others go on meanwhile. */
const LOCK_WAIT_MS = 6;

/**
 * Until the end of the test, every statement that this process sends to PostgreSQL waits for a turn first. A seed
 * decides which of all waiting statements, on whichever connection, is next. So transactions meet between any two of
 * their statements.
 */
function turnBeforeEveryStatement(): { begin(seed: number): void } {
  let random = seededRandom(1);
  const waiting: (() => void)[] = [];
  let isBusy = false;
  const next = () => {
    if (isBusy || waiting.length === 0) return;
    isBusy = true;
    // All statements that can go on by now are waiting.
    setImmediate(() => {
      const [go] = waiting.splice(Math.floor(random() * waiting.length), 1);
      go?.();
    });
  };
  const done = () => {
    isBusy = false;
    next();
  };
  const original = pg.Client.prototype.query;
  const inOrder = async function (this: pg.Client, ...given: unknown[]) {
    await new Promise<void>((resolve) => {
      waiting.push(resolve);
      next();
    });
    const asked = (original as (...given: unknown[]) => Promise<unknown>).apply(this, given);
    let isOver = false;
    const end = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(late);
      done();
    };
    const late = setTimeout(end, LOCK_WAIT_MS);
    asked.then(end, end);
    return asked;
  };
  pg.Client.prototype.query = inOrder as typeof original;
  onTestFinished(() => {
    pg.Client.prototype.query = original;
  });
  return {
    begin: (seed) => {
      random = seededRandom(seed);
    },
  };
}

const PROCESSES = 3;
const RACES = fuzzRuns(60);
const ITEMS = 4;
/** Enough for the batch and for two of the real-time requests. */
const BALANCE = 34;
const HOLD = 4;

const FACTS = { mimeType: "image/png", widthPx: 1, heightPx: 1, decodedPixels: 1 } as const;
const deps = { clock: systemClock, ids: randomIds };

/** Three processes on one database and one store of blobs. */
async function processes(): Promise<{ all: Stores[]; blobs: BlobStore }> {
  const url = await newDatabase();
  const all: Stores[] = [];
  for (let i = 0; i < PROCESSES; i++) {
    const database = await openPostgres({ url }, systemClock);
    onTestFinished(() => database.close());
    all.push(sqlStores(database));
  }
  return { all, blobs: damaging(fileBlobs(join(await tempDir(), "blobs"))) };
}

/** Stores every third image with other bytes, as a bad disk does: it must be read back, and not be paid for. */
function damaging(blobs: BlobStore): BlobStore {
  let count = 0;
  const put: BlobStore["put"] = async (key, bytes) => {
    const stored = await blobs.put(key, bytes);
    if (count++ % 3 === 0) await blobs.put(key, Buffer.from("damaged"));
    return stored;
  };
  return { ...blobs, put };
}

/** The entries of an account, in the order of their numbers, never take more than there is. */
async function ledgerProblems(stores: Stores, accountId: string): Promise<string[]> {
  let balance = 0;
  const entries = await stores.read.ledger.list({ accountId });
  return entries.flatMap(({ seq, balanceChangeMicroUsd }) => {
    balance += balanceChangeMicroUsd;
    return balance < 0 ? [`entry ${seq} of the ledger leaves ${balance}`] : [];
  });
}

/**
 * Three processes do at the same time whatever a service does, with one batch and one account, until the batch has ended.
 * Returns what is wrong then.
 */
async function race(seed: number, all: readonly Stores[], blobs: BlobStore): Promise<string[]> {
  const random = seededRandom(seed);
  const [stores] = all as [Stores, Stores, Stores];
  const troubles: string[] = [];
  /** Refusals are answers. */
  const attempt = <T>(work: Promise<T>): Promise<T | null> =>
    work.catch((error) => {
      if (!(error instanceof ImgbatchError)) troubles.push(`${error}`);
      return null;
    });
  const each = <T>(work: (stores: Stores, at: number) => Promise<T>) =>
    Promise.all(all.map((one, at) => attempt(work(one, at))));

  const key = await openKey(stores, { account: `a${seed}`, balanceMicroUsd: BALANCE });
  const { accountId, id: apiKeyId } = key;
  const worker = await joinAs(stores, `w${seed}`);
  const request: CheckedRequest = {
    model: modelEntry,
    taskName: null,
    parentBatchId: null,
    mimeType: "image/png",
    metadata: null,
    items: Array.from({ length: ITEMS }, (_, i) => {
      return {
        customId: `i${i}`,
        prompt: "p",
        earlier: "",
        outputCount: 1,
        images: [],
        options: DEFAULT_OPTIONS,
      };
    }),
    hash: "h",
  };
  const realtime = async (one: Stores) => {
    const id = randomIds.recordId("rt");
    const hold = { id, apiKeyId, accountId, amountMicroUsd: HOLD, createdAtMs: 1, worker };
    await openHold(one, hold);
    await each((other) => endHold(other, hold, [], [], 2));
  };
  /** One ends a request while the others take its process for dead. */
  const takenForDead = async () => {
    const id = randomIds.recordId("rt");
    const dying = await joinAs(stores, `dying${seed}`);
    const hold = { id, apiKeyId, accountId, amountMicroUsd: HOLD, createdAtMs: 1, worker: dying };
    await openHold(stores, hold);
    await stores.write((tx) => tx.workers.remove(dying));
    const image = { ...imageFacts, ...hold, realtimeId: id };
    await each(async (other, at) => {
      if (at === 0) await endHold(other, hold, [image], [], 2);
      else await releaseDeadHolds(other, 2);
    });
  };
  const offers = new Offers([new FakeProvider()], []);
  const [created] = await Promise.all([
    each((one) =>
      createBatch(
        { stores: one, blobs, ...deps, offers, takesBatches: async () => true, goesOn: "always" },
        { key, group: groupEntry },
        request,
        "idem",
      ),
    ),
    each(realtime),
    attempt(takenForDead()),
    each((one) => one.write((tx) => topUp(tx, deps, accountId, 1))),
  ]);
  const made = created.filter((one) => one !== null && !one.replayed);
  const ids = new Set(created.flatMap((one) => one?.batch.id ?? []));
  if (made.length > 1 || ids.size > 1) troubles.push(`${made.length} batches were made of one key`);
  const [batch] = made.map((one) => one?.batch);
  if (batch) await makeBatch(batch.id);
  const { problems } = await checkInvariants(stores, blobs);
  return [...troubles, ...(await ledgerProblems(stores, accountId)), ...problems];

  async function makeBatch(id: string): Promise<void> {
    const end = () => ({ nowMs: Date.now(), outputsExpireAtMs: null });
    const status = async (one: Stores) => (await one.read.batches.byId(id))?.status ?? "failed";
    const cancelAfter = random() < 0.7 ? Math.floor(random() * 2) : Number.POSITIVE_INFINITY;
    await each((one) => startBatch(one, id, Date.now()));
    await each(async (one, at) => {
      for (let turn = 0; turn < 50 && !isTerminal(await status(one)); turn++) {
        if (turn >= cancelAfter && at === 0) await cancelBatch({ stores: one, blobs }, id, end);
        await makeItems(one, id, `w${at}`);
        await startProcessing(one, id, `w${at}`, Date.now());
        await processResults({ stores: one, blobs }, id, Date.now);
        await settleBatch(one, id, end());
      }
    });
    if (!isTerminal(await status(stores))) troubles.push("the batch did not end");
    const feed = new Feed();
    if (random() < 0.3) await each((one) => dropOutputs({ stores: one, blobs, feed, log: silentLog }, id, 9));
  }

  async function makeItems(one: Stores, id: string, worker: string): Promise<void> {
    const batch = await one.read.batches.byId(id);
    const token = randomIds.leaseToken();
    const which = { which: "any", mostSwitches: 2, limit: 2 } as const;
    const claim = {
      token,
      worker,
      nowMs: Date.now(),
      provider: "procedural",
      upstream: "procedural",
      isPaid: false,
      ...which,
    };
    const items = await one.write((tx) => tx.items.claim(id, claim));
    if (batch === null) return;
    const finishes = groupFinishes(one);
    await Promise.all(
      items.map((item) => {
        const leased = { ...item, leaseToken: token };
        const images = [{ image: Buffer.from(token), facts: FACTS }];
        const error = { code: "PROVIDER_ITEM_FAILED", message: "m", source: "provider" } as const;
        const back = { notBeforeMs: 0, attempts: 1, failedAt: null, maybePaid: "no", usage: null } as const;
        const dice = random();
        if (dice < 0.2) return attempt(failItem(one, batch, leased, error, Date.now()));
        if (dice < 0.3) return attempt(one.write((tx) => tx.items.giveBack(item.id, token, back)));
        return attempt(
          finishItem(
            { stores: one, blobs, finishes },
            batch,
            leased,
            { images, modelVersion: null },
            Date.now,
          ),
        );
      }),
    );
  }
}

describe.skipIf(!hasPostgres)("races of three processes on one PostgreSQL", () => {
  it("money, counts, history and images agree whatever the order of their statements", async () => {
    const { all, blobs } = await processes();
    const turns = turnBeforeEveryStatement();
    for (let seed = 1; seed <= RACES; seed++) {
      turns.begin(seed);
      expect(await race(seed, all, blobs), `seed ${seed}`).toEqual([]);
    }
  });
});
