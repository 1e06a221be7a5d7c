import pg from "pg";
import { expect, it, onTestFinished } from "vitest";
import { checkInvariants } from "../../../src/domain/check-invariants.ts";
import { endHold, openHold } from "../../../src/domain/realtime/holds.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { hasPostgres, openTestPostgres } from "../../support/postgres.ts";
import { openKey } from "../../support/service.ts";
import { joinAs } from "../../support/stores.ts";
import { tempDir } from "../../support/temp-dir.ts";

it.skipIf(!hasPostgres)("a hold is released also when its transaction is still about to end", async () => {
  const { url, stores } = await openTestPostgres();
  const worker = await joinAs(stores, "w");
  const { id: apiKeyId, accountId } = await openKey(stores, { balanceMicroUsd: 10 });
  const hold = { id: "gen_1", apiKeyId, accountId, amountMicroUsd: 4, createdAtMs: 1, worker };
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
  const account = await stores.read.accounts.byId(accountId);
  expect(account).toMatchObject({ balanceMicroUsd: 10, heldMicroUsd: 0 });
  const moved = (await stores.read.ledger.list({ accountId })).map(({ kind }) => kind);
  expect(moved).toEqual(["top_up", "hold", "release"]);
  expect((await checkInvariants(stores, fileBlobs(await tempDir()))).problems).toEqual([]);
});
