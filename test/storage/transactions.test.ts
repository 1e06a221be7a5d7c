import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it, onTestFinished } from "vitest";
import { onEachDialect } from "../support/dialects.ts";
import { openBeside } from "../support/service.ts";
import { openStores } from "../support/stores.ts";
import { tempDir } from "../support/temp-dir.ts";

const account = (id: string) => ({ id, name: id, createdAtMs: 1 });
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

onEachDialect("transactions", (openStores) => {
  it("a write that waits for anything but the database is undone, and the next write runs", async () => {
    const stores = await openStores();
    const waiting = stores.write(async (tx) => {
      await tx.accounts.insert(account("a"));
      await nextTurn();
    });
    const inside = stores.write(async (tx) => {
      await tx.accounts.insert(account("b"));
      await stores.write((other) => other.accounts.insert(account("c")));
    });
    const message = "a transaction waited for something other than its database";
    expect(await Promise.allSettled([waiting, inside])).toMatchObject(Array(2).fill({ reason: { message } }));
    await stores.write((tx) => tx.accounts.insert(account("d")));
    const ids = async () => (await stores.read.accounts.list()).map(({ id }) => id);
    await expect.poll(ids).toEqual(["c", "d"]);
  });

  it("a transaction takes no query after its end, since the query would join the next one", async () => {
    const stores = await openStores();
    let late: () => Promise<void> = async () => {};
    await stores.write(async (tx) => {
      late = () => tx.accounts.insert(account("late"));
    });
    const failing = stores.write(async (tx) => {
      await expect(late()).rejects.toThrow("after the end of its transaction");
      await tx.accounts.insert(account("a"));
      late = () => tx.accounts.insert(account("b"));
      throw new Error("on purpose");
    });
    await expect(failing).rejects.toThrow("on purpose");
    await expect(late()).rejects.toThrow("after the end of its transaction");
    const names = await stores.snapshot(async (now) => () => now.accounts.list());
    await expect(names()).rejects.toThrow("after the end of its transaction");
    expect(await stores.read.accounts.list()).toEqual([]);
  });
});

describe("transactions of SQLite", () => {
  it("writes run one after another: none sees another half done, and none is undone with another", async () => {
    const stores = await openStores();
    const writes = ["a", "b", "c"].map((id) =>
      stores.write(async (tx) => {
        const before = (await tx.accounts.list()).length;
        await tx.accounts.insert(account(id));
        if (id === "b") throw new Error("on purpose");
        return before;
      }),
    );
    expect(await Promise.allSettled(writes)).toMatchObject([
      { value: 0 },
      { reason: { message: "on purpose" } },
      { value: 1 },
    ]);
    expect((await stores.read.accounts.list()).map(({ id }) => id)).toEqual(["a", "c"]);
  });

  it("reads of one moment do not see later writes; every other read sees them at once", async () => {
    const data = await tempDir();
    const { stores } = await openBeside(data);
    const other = new Sqlite(join(data, "imgbatch.db"));
    onTestFinished(() => {
      other.close();
    });
    await stores.snapshot(async (now) => {
      expect(await now.accounts.list()).toEqual([]);
      other.exec("INSERT INTO accounts (id, name, created_at_ms) VALUES ('a', 'a', 1)");
      expect(await stores.read.accounts.list()).toHaveLength(1);
      expect(await now.accounts.list()).toEqual([]);
    });
    expect(await stores.snapshot((now) => now.accounts.list())).toHaveLength(1);
  });

  it("transactions that wait at the same time share a commit, and one that throws is undone alone", async () => {
    const stores = await openStores();
    const writes = Array.from({ length: 20 }, (_, i) =>
      stores.write(async (tx) => {
        await tx.accounts.insert(account(`a${i}`));
        if (i % 3 === 1) throw new Error(`on purpose ${i}`);
        return i;
      }),
    );
    const ends = await Promise.allSettled(writes);
    expect(ends.map(({ status }) => status === "fulfilled")).toEqual(ends.map((_, i) => i % 3 !== 1));
    const names = (await stores.read.accounts.list()).map(({ name }) => name);
    expect(names.sort()).toEqual(
      Array.from({ length: 20 }, (_, i) => `a${i}`)
        .filter((_, i) => i % 3 !== 1)
        .sort(),
    );
    const alone = stores.write(async (tx) => {
      await tx.accounts.insert(account("alone"));
      throw new Error("on purpose, alone");
    });
    await expect(alone).rejects.toThrow("on purpose, alone");
    await stores.write((tx) => tx.accounts.insert(account("next")));
    const later = (await stores.read.accounts.list()).map(({ name }) => name);
    expect(later).toHaveLength(names.length + 1);
    expect(later).not.toContain("alone");
  });
});
