import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it, onTestFinished } from "vitest";
import { DATA_FILES } from "../../src/contract/data-directory.ts";
import { settleHold } from "../../src/domain/billing/ledger.ts";
import { type Admin, openAdmin } from "../../src/service/admin.ts";
import { FakeClock } from "../support/fake-clock.ts";
import { InstantClock } from "../support/instant-clock.ts";
import { openBeside, startTestService } from "../support/service.ts";
import { openBatchRecord } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";

async function administer(options: Partial<Parameters<typeof openAdmin>[0]> = {}) {
  const admin = await openAdmin({ directory: await tempDir(), mayCreate: true, ...options });
  onTestFinished(() => admin.close());
  return admin;
}

const newKey = (key: Partial<Parameters<Admin["createKey"]>[0]> = {}) => ({
  name: "k",
  accountName: "default",
  group: "default",
  expiresAtMs: null,
  isPlayMoney: true,
  ...key,
});

describe("accounts", () => {
  it("[ADMIN-1] the amount held for a batch is listed apart from the amount that can be spent", async () => {
    const directory = await tempDir();
    const { stores } = await openBeside(directory);
    await openBatchRecord(stores, 5);
    const admin = await administer({ directory });
    expect(await admin.accounts()).toMatchObject([{ name: "test", balanceMicroUsd: 940, heldMicroUsd: 60 }]);
  });

  it("a name can be used once, and a wrong name tops up no account", async () => {
    const admin = await administer();
    const account = { name: "a", balanceMicroUsd: 7 };
    const made = await Promise.all([admin.createAccount(account), admin.createAccount(account)]);
    expect(made.filter((one) => one === null)).toHaveLength(1);
    expect(await admin.topUp("A", 1)).toBeNull();
    expect(await admin.accounts()).toMatchObject([{ name: "a", balanceMicroUsd: 7 }]);
  });

  it("a database that stays locked is the same error as from the service", async () => {
    const directory = await tempDir();
    const admin = await administer({ directory, clock: new InstantClock() });
    const other = new Sqlite(join(directory, DATA_FILES.database));
    onTestFinished(() => void other.close());
    other.exec("BEGIN IMMEDIATE");
    await expect(admin.createAccount({ name: "a", balanceMicroUsd: 7 })).rejects.toMatchObject({
      code: "BATCH_IMAGE_QUEUE_FAILED",
      message: expect.stringContaining("locked"),
    });
  });

  it("no account gets more than can be counted exactly, with what is held for it", async () => {
    const directory = await tempDir();
    const { stores } = await openBeside(directory);
    await openBatchRecord(stores, 5);
    const admin = await administer({ directory });
    const room = Number.MAX_SAFE_INTEGER - 1000;
    expect(await admin.topUp("test", room + 1)).toEqual({ mostMicroUsd: room });
    expect(await admin.topUp("test", room)).toMatchObject({ balanceMicroUsd: room + 940 });
    expect((await admin.ledger({})).at(-1)).toMatchObject({ kind: "top_up", balanceMicroUsd: room + 940 });
  });
});

describe("keys", () => {
  it("[ADMIN-2] a key ends when its time has come; disabled is said first", async () => {
    const clock = new FakeClock();
    const admin = await administer({ clock });
    const stateOf = async () => (await admin.keys()).map(({ state }) => state);
    const made = await admin.createKey(newKey({ expiresAtMs: clock.nowMs() + 1000 }));
    const id = made?.id ?? "";
    clock.advance(999);
    expect(await stateOf()).toEqual(["active"]);
    clock.advance(1);
    expect(await stateOf()).toEqual(["expired"]);
    expect(await admin.setKeyDisabled(id, true)).toMatchObject({ state: "disabled" });
    expect(await admin.setKeyDisabled(id, false)).toMatchObject({ state: "expired" });
  });

  it("[ADMIN-2] disabling a key again keeps the moment when it was disabled first", async () => {
    const clock = new FakeClock();
    const admin = await administer({ clock });
    const id = (await admin.createKey(newKey()))?.id ?? "";
    const disabledAtMs = clock.nowMs();
    await admin.setKeyDisabled(id, true);
    clock.advance(5000);
    expect(await admin.setKeyDisabled(id, true)).toMatchObject({ disabledAtMs });
    expect(await admin.setKeyDisabled("key_unknown", true)).toBeNull();
  });
});

describe("the ledger", () => {
  it("shows the balance after each entry, also where entries are left out", async () => {
    const directory = await tempDir();
    const { stores } = await openBeside(directory);
    const admin = await administer({ directory });
    const first = await openBatchRecord(stores, 5);
    await admin.createAccount({ name: "other", balanceMicroUsd: 3 });
    const second = await openBatchRecord(stores, 1);
    await stores.write((tx) => settleHold(tx, first, 20, 9));
    const shown = async (filter: Parameters<typeof admin.ledger>[0]) =>
      (await admin.ledger(filter)).map((e) => [
        e.accountName,
        e.kind,
        e.balanceChangeMicroUsd,
        e.balanceMicroUsd,
      ]);
    const ofFirst = [
      ["test", "hold", -60, 940],
      ["test", "capture", 0, 928],
      ["test", "release", 40, 968],
    ];
    expect(await shown({})).toEqual([
      ["test", "top_up", 1000, 1000],
      ofFirst[0],
      ["other", "top_up", 3, 3],
      ["test", "hold", -12, 928],
      ofFirst[1],
      ofFirst[2],
    ]);
    expect(await shown({ batchIds: [first.id] })).toEqual(ofFirst);
    expect(await shown({ accountId: (await admin.account("other"))?.id })).toEqual([
      ["other", "top_up", 3, 3],
    ]);
    expect(await shown({ accountId: (await admin.account("other"))?.id, batchIds: [second.id] })).toEqual([]);
  });
});

describe("a directory that no service has used yet", () => {
  it("gets the account of the first start with its first key, and the start leaves it as it is", async () => {
    const directory = await tempDir();
    const admin = await administer({ directory });
    const made = await admin.createKey(newKey());
    expect(await admin.accounts()).toMatchObject([{ name: "default", balanceMicroUsd: 1_000_000_000 }]);
    const service = await startTestService({ data: directory });
    expect(await admin.accounts()).toMatchObject([{ name: "default", balanceMicroUsd: 1_000_000_000 }]);
    expect((await admin.keys()).map(({ name }) => name)).toEqual(["k", "local"]);
    for (const key of [made?.key, service.credentials.api_key]) {
      const answer = await service.ask("/models", { headers: { authorization: `Bearer ${key}` } });
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
    }
  });

  it("has no play money where an upstream is to be paid, or where the operator set the balance", async () => {
    const upstream = await administer();
    await upstream.createKey(newKey({ isPlayMoney: false }));
    expect(await upstream.accounts()).toMatchObject([{ name: "default", balanceMicroUsd: 0 }]);

    const directory = await tempDir();
    const own = await administer({ directory });
    await own.createAccount({ name: "default", balanceMicroUsd: 2 });
    await own.createKey(newKey());
    await startTestService({ data: directory });
    expect(await own.accounts()).toMatchObject([{ name: "default", balanceMicroUsd: 2 }]);
  });

  it("a key for an account that is not there makes no account", async () => {
    const admin = await administer();
    expect(await admin.createKey(newKey({ accountName: "nobody" }))).toBeNull();
    expect([await admin.accounts(), await admin.keys()]).toEqual([[], []]);
  });
});
