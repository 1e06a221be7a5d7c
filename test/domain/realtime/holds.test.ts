import pg from "pg";
import { expect, it, onTestFinished } from "vitest";
import { issueKey, openAccount } from "../../../src/domain/accounts.ts";
import { realtimeMoneyProblems } from "../../../src/domain/check-invariants.ts";
import type { Stores } from "../../../src/domain/ports/stores.ts";
import { endHold, openHold, releaseDeadHolds } from "../../../src/domain/realtime/holds.ts";
import { randomIds } from "../../../src/kernel/ids.ts";
import { onEachDialect } from "../../support/dialects.ts";
import { imageFacts } from "../../support/entries.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { hasPostgres, openTestPostgres } from "../../support/postgres.ts";
import { joinAs } from "../../support/stores.ts";

const PRICE = 4;

/** A worker, and a hold that it may place, on an account with this much money. */
async function holdOn(stores: Stores, balanceMicroUsd = 10) {
  const deps = { clock: new FakeClock(), ids: randomIds };
  const worker = await joinAs(stores, "w");
  const key = await stores.write(async (tx) => {
    const { id: accountId } = await openAccount(tx, deps, { name: "a", balanceMicroUsd });
    return issueKey(tx, deps, { name: "k", accountId, group: "g", expiresAtMs: null });
  });
  const { id: apiKeyId, accountId } = key;
  const hold = { id: "gen_1", apiKeyId, accountId, amountMicroUsd: PRICE, createdAtMs: 1, worker };
  const image = {
    ...imageFacts,
    realtimeId: hold.id,
    apiKeyId,
    accountId,
    amountMicroUsd: PRICE,
    createdAtMs: 2,
  } as const;
  return {
    hold,
    image,
    die: () => stores.write((tx) => tx.workers.remove(worker)),
    /** Balance, held amount, images that were recorded, and movements of money after the first. */
    books: async () => {
      const account = await stores.read.accounts.byId(accountId);
      if (account === null) throw new Error("no account");
      const entries = await stores.read.ledger.list({ accountId });
      expect(await realtimeMoneyProblems(stores.read, account, entries)).toEqual([]);
      const moved = (await stores.read.ledger.list({})).slice(1).map(({ kind }) => kind);
      const { balanceMicroUsd, heldMicroUsd } = account;
      return [balanceMicroUsd, heldMicroUsd, await stores.read.usage.count(), moved.join(" ")];
    },
  };
}

onEachDialect("the hold of a real-time request", (open) => {
  it("is placed by a process that is alive alone", async () => {
    const stores = await open();
    const { hold, die, books } = await holdOn(stores);
    await die();
    await expect(openHold(stores, hold)).rejects.toMatchObject({ code: "REALTIME_STOPPING" });
    expect(await books()).toEqual([10, 0, 0, ""]);
  });

  it("is charged once when others have released it and its images are there", async () => {
    const stores = await open();
    const { hold, image, die, books } = await holdOn(stores);
    await openHold(stores, hold);
    await die();
    expect(await releaseDeadHolds(stores, 2)).toBe(1);
    const call = { provider: "p", model: "m", images: 1, isError: false, isMaybePaidTwice: false } as const;
    const calls = [{ ...call, billedMicroUsd: PRICE, usage: null }];
    for (let i = 0; i < 2; i++) await endHold(stores, hold, [image], calls, 3);
    expect(await books()).toEqual([6, 0, 1, "hold release charge"]);
    expect(await stores.read.providerCalls.list({})).toMatchObject([{ requests: 1, billedMicroUsd: PRICE }]);
  });

  it("is an error when it was released and the balance does not pay the images any more", async () => {
    const stores = await open();
    const { hold, image, die, books } = await holdOn(stores, 5);
    await openHold(stores, hold);
    await die();
    await releaseDeadHolds(stores, 2);
    const other = { ...hold, id: "gen_2", worker: await joinAs(stores, "other") };
    await openHold(stores, other);
    const late = endHold(stores, hold, [image], [], 3);
    await expect(late).rejects.toThrow("an upstream may have been paid");
    await expect(late).rejects.toMatchObject({ code: "REALTIME_INSUFFICIENT_BALANCE" });
    expect(await books()).toEqual([1, PRICE, 0, "hold release hold"]);
  });
});

it.skipIf(!hasPostgres)("a hold is released also when its transaction is still about to end", async () => {
  const { url, stores } = await openTestPostgres();
  const { hold, books } = await holdOn(stores);
  const connect = async () => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    onTestFinished(() => client.end());
    return client;
  };
  const [other, watcher] = [await connect(), await connect()];
  const waiting = async () => {
    const asked =
      "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    return (await watcher.query(asked)).rowCount;
  };
  await other.query("begin; lock table ledger_entries in share row exclusive mode");
  const placed = openHold(stores, hold);
  await expect.poll(waiting).toBe(1);
  const released = endHold(stores, hold, [], [], 2);
  await expect.poll(waiting).toBe(2);
  await other.query("commit");
  await Promise.all([placed, released]);
  expect(await books()).toEqual([10, 0, 0, "hold release"]);
});
