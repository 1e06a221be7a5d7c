import { utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import Sqlite from "better-sqlite3";
import { describe, expect, it } from "vitest";
import { DATA_FILES } from "../../src/contract/data-directory.ts";
import { fileBlobs } from "../../src/storage/blobs/file-blobs.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { checkOf, usedDirectory } from "../support/used-directory.ts";

function change(data: string, statement: string): void {
  const database = new Sqlite(join(data, DATA_FILES.database));
  expect(database.prepare(statement).run().changes).toBeGreaterThan(0);
  database.close();
}

const ONE_MORE = "amount_micro_usd = amount_micro_usd + 1";

// The database of a directory is changed behind the service's back.
describe.skipIf(process.env.IMGBATCH_TEST_STORES !== undefined)("admin check", () => {
  it("[CHECK-1] finds each value of a batch that does not agree with the others, and nothing before", async () => {
    const { data } = await usedDirectory(3);
    expect((await checkOf(data)).problems).toEqual([]);
    const damages = [
      [`update ledger_entries set ${ONE_MORE} where kind = 'hold'`, "held "],
      [`update ledger_entries set ${ONE_MORE} where kind = 'capture'`, "captured "],
      [`update ledger_entries set ${ONE_MORE} where kind = 'release'`, "hold "],
      ["update ledger_entries set kind = 'grant' where kind = 'release'", "granted "],
      ["update ledger_entries set kind = 'take_back' where kind = 'release'", "taken back "],
      ["update batches set actual_micro_usd = actual_micro_usd + 1", "its cost is "],
      ["update batches set actual_micro_usd = null", "its cost is null"],
      ["update batches set estimated_micro_usd = estimated_micro_usd + 1", "its estimate is "],
      ["update batches set item_count = 4", "3 items, should be 4"],
      ["update batches set success_count = 2", "its counts of successes and failures are wrong"],
      ["update batches set fail_count = 1", "its counts of successes and failures are wrong"],
      ["update items set status = 'pending' where position = 0", "ended with 1 pending items"],
      ["update items set price_micro_usd = 1 where position = 0", "its estimate is "],
      ["update items set hold_micro_usd = 1 where position = 0", "its hold is "],
      ["delete from batch_events where \"to\" = 'running'", "its history does not lead to completed"],
      ["delete from batch_events", "its history does not lead to completed"],
      ["delete from outputs where item_id = (select min(id) from items)", "1 of the images of "],
      ["update batches set status = 'cancelled'", "its history does not lead to cancelled"],
    ] as const;
    const database = new Sqlite(join(data, DATA_FILES.database));
    const whole = database.serialize();
    database.close();
    for (const [statement, problem] of damages) {
      change(data, statement);
      const { problems } = await checkOf(data);
      expect({ statement, problems }).toEqual({
        statement,
        problems: expect.arrayContaining([expect.stringMatching(new RegExp(`^batch .*: ${problem}`))]),
      });
      await writeFile(join(data, DATA_FILES.database), whole);
    }
    expect((await checkOf(data)).problems).toEqual([]);
  });

  it("[CHECK-2] repairs counts and removes files that no row names, once, and leaves what is not certain", async () => {
    const { data, id } = await usedDirectory(3);
    const blobs = fileBlobs(join(data, DATA_FILES.blobs));
    const old = [
      "outputs/gone/1-a-0",
      `outputs/${id}/99-a-0`,
      "inputs/gone/lines",
      "files/gone",
      "links/gone",
    ];
    for (const key of [...old, "outputs/gone/2-b-0", "inputs/new/lines"])
      await blobs.put(key, Buffer.from("x"));
    const hoursAgo = new Date(Date.now() - 2 * 3_600_000);
    for (const key of old) await utimes(join(data, DATA_FILES.blobs, key), hoursAgo, hoursAgo);
    change(data, "update batches set success_count = 1, fail_count = 1");
    change(data, "update accounts set balance_micro_usd = balance_micro_usd + 1");
    const check = (...flags: string[]) =>
      runInProcess(["admin", "check", "--data", data, ...flags], { cwd: data });
    const first = await check("--repair", "--json");
    const money = expect.stringContaining("account default: balance is ");
    expect(JSON.parse(first.stdout)).toMatchObject({
      exit_code: 4,
      repaired: { files: 5, batches: [id] },
      problems: [money],
    });
    const left = (await blobs.list(""))
      .map(({ key }) => key)
      .filter((key) => !key.startsWith(`outputs/${id}/`));
    expect(left.sort()).toEqual(["inputs/new/lines", "outputs/gone/2-b-0"]);
    const again = await check("--repair", "--json");
    expect(JSON.parse(again.stdout).repaired).toEqual({ files: 0, batches: [] });
    change(data, "update accounts set balance_micro_usd = balance_micro_usd - 1");
    expect(await check()).toMatchObject({ code: 0, stdout: "ok: 1 account, 1 batch, 3 images\n" });
  });
});
