import { existsSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { timeSpan } from "../../src/cli/options.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FakeProvider } from "../support/fake-provider.ts";
import { hasPostgres, newDatabase } from "../support/postgres.ts";
import { BIN, imgbatch } from "../support/processes.ts";
import { fakeBucket } from "../support/s3/buckets.ts";
import { watchSecret } from "../support/secrets.ts";
import { items, MODEL, otherKey, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const HOLD_USD = 0.0402;
const PRICE_USD = 0.0335;

let data: string;
beforeEach(async () => {
  data = await tempDir();
});

const ledgerOf = async (...args: string[]) => (await ask("ledger", ...args)).entries;

const admin = (...args: string[]) => runInProcess(["admin", ...args, "--data", data], { cwd: data });
const adminProcess = (...args: string[]) => imgbatch(["admin", ...args, "--data", data]);

/** Runs a command that must succeed, and answers its document. */
async function ask(...args: string[]) {
  const { code, stdout, stderr } = await admin(...args, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining("error") });
  return JSON.parse(stdout);
}

async function serve() {
  const { url } = await startTestService({ data });
  const call = async (path: string, key: string, body?: object) => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
    const answer = await fetch(`${url}/v1/images/batches${path}`, init);
    return { status: answer.status, body: await answer.json() };
  };
  return { call };
}

const REQUEST = { model: "vendorx-3.1-flash-image", items: [{ custom_id: "fox", prompt: "a red fox" }] };

describe("imgbatch admin accounts", () => {
  it("with an upstream, tops up the real account of an account with play money", async () => {
    await ask("keys", "create");
    const config = join(data, "mine.json");
    const provider = { name: "mine", type: "command", argv: ["true"] };
    const models = [{ id: "m", prices: { "1K": 1 } }];
    await writeFile(config, JSON.stringify({ models, providers: [provider] }));
    const { code, stdout, stderr } = await admin(
      ...["accounts", "top-up", "default", "5", "--json", "--config", config],
    );
    expect({ code, account: JSON.parse(stdout) }).toMatchObject({
      code: 0,
      account: { name: "default (real)", balance: 5 },
    });
    expect(stderr).toContain(
      "default has play money, which buys drawings only: default (real) pays for upstreams",
    );
    await ask("accounts", "top-up", "default", "1", "--config", config);
    expect(await ask("accounts", "list")).toMatchObject([
      { name: "default", balance: 1000, play: true },
      { name: "default (real)", balance: 6 },
    ]);
    expect((await admin("accounts", "list")).stdout).toMatch(/default \(real\) +\$6\.00 /);
    expect((await admin("check")).code).toBe(0);
  });

  it("[ADMIN-1] creates, tops up and lists, in dollars, as JSON and for people", async () => {
    const created = await ask("accounts", "create", "team", "--balance", "12.5");
    const facts = { name: "team", balance: 12.5, held: 0, created_at: expect.any(Number) };
    expect(created).toEqual({ ok: true, exit_code: 0, ...facts });
    expect(Math.abs(created.created_at - Date.now() / 1000)).toBeLessThan(60);
    await ask("accounts", "create", "other");
    expect(await ask("accounts", "top-up", "team", "0.000001")).toMatchObject({ balance: 12.500001 });
    const other = { name: "other", balance: 0, held: 0, created_at: expect.any(Number) };
    expect(await ask("accounts", "list")).toEqual([{ ...facts, balance: 12.500001 }, other]);
    const { stdout } = await admin("accounts", "list");
    expect(stdout.replaceAll(/\d{4}-\S+Z/g, "TIME")).toBe(
      [
        "name      balance   held  created",
        "team   $12.500001  $0.00  TIME",
        "other       $0.00  $0.00  TIME",
        "",
      ].join("\n"),
    );
  });

  it("[ADMIN-1] top-ups of several processes at once are all counted", async () => {
    await ask("accounts", "create", "team");
    const runs = Array.from({ length: 3 }, () => adminProcess("accounts", "top-up", "team", "0.1"));
    expect((await Promise.all(runs)).map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(await ask("accounts", "list")).toMatchObject([{ balance: 0.3 }]);
    expect((await admin("check")).code).toBe(0);
  });
});

describe("imgbatch admin keys", () => {
  it("[ADMIN-2] shows a key once: alone on stdout, with a note on stderr", async () => {
    const { stdout, stderr } = await admin("keys", "create", "--name", "ci");
    expect(stdout).toMatch(/^imgb_[\w-]{43}\n$/);
    expect(stderr).toContain("not shown again");
    const key = stdout.trim();
    const listed = await admin("keys", "list");
    const document = await admin("keys", "list", "--json");
    expect(`${stderr}${listed.stdout}${document.stdout}`).not.toContain(key);
    expect(listed.stdout).toContain(key.slice(0, 12));
    expect(JSON.parse(document.stdout).keys).toEqual([
      {
        id: expect.stringMatching(/^key_/),
        name: "ci",
        prefix: key.slice(0, 12),
        account: "default",
        group: "default",
        state: "active",
        created_at: expect.any(Number),
        expires_at: null,
      },
    ]);
    const files = (await readdir(data, { recursive: true })).filter((name) => /imgbatch\.db/.test(name));
    for (const file of files) expect(await readFile(join(data, file), "latin1")).not.toContain(key);
  });

  it("[ADMIN-2] --json has the key with its facts", async () => {
    await ask("accounts", "create", "team");
    const made = await ask("keys", "create", "--account", "team", "--expires", "2199-01-31");
    expect(made).toEqual({
      ok: true,
      exit_code: 0,
      id: expect.stringMatching(/^key_/),
      name: "unnamed",
      key: expect.stringMatching(/^imgb_[\w-]{43}$/),
      account: "team",
      group: "default",
      created_at: expect.any(Number),
      expires_at: Date.UTC(2199, 1, 1) / 1000,
    });
  });

  it("[ADMIN-2] --group takes the groups of the configuration", async () => {
    const config = join(data, "own.json");
    await writeFile(config, '{ "groups": [{ "name": "night" }] }');
    const made = await ask("keys", "create", "--group", "night", "--config", config);
    expect(made).toMatchObject({ group: "night" });
    const { code, stderr } = await admin("keys", "create", "--config", config);
    expect(code).toBe(2);
    expect(stderr).toContain(
      '--group "default": no group of the configuration has this name; write one of night',
    );
  });

  const endOfTime = (text: string) => timeSpan(text)?.endMs ?? null;

  it("a day ends at its end in UTC, a time needs its offset, and both must be dates", () => {
    expect(endOfTime("2030-01-31")).toBe(Date.UTC(2030, 1, 1));
    expect(endOfTime("2028-02-29")).toBe(Date.UTC(2028, 2, 1));
    expect(endOfTime("2030-01-31T18:00:00Z")).toBe(Date.UTC(2030, 0, 31, 18));
    expect(endOfTime("2030-01-31t18:00:00.25+05:30")).toBe(Date.UTC(2030, 0, 31, 12, 30, 0, 250));
    const days = [
      "2030-02-30",
      "2030-13-01",
      "2027-02-29",
      "31.01.2030",
      "2030-1-31",
      "2030",
      "",
      "tomorrow",
    ];
    const times = ["2030-01-31T18:00:00", "2030-01-31T24:00:00Z", "2030-01-31T18:00Z", "1900000000", "90d"];
    expect([...days, ...times].filter((text) => endOfTime(text) !== null)).toEqual([]);
  });
});

describe("a running service", () => {
  it("takes a new key at once, refuses it when disabled, takes it again when enabled", async () => {
    const { call } = await serve();
    const { id, key } = await ask("keys", "create", "--name", "visitor");
    expect((await call("/models", key)).status).toBe(200);
    expect(await ask("keys", "disable", id)).toMatchObject({ id, name: "visitor", state: "disabled" });
    const refused = { status: 401, body: { error: { code: "API_KEY_DISABLED" } } };
    expect(await call("/models", key)).toMatchObject(refused);
    expect((await ask("keys", "list")).keys).toMatchObject([{ state: "active" }, { id, state: "disabled" }]);
    expect(await ask("keys", "enable", id)).toMatchObject({ id, state: "active" });
    expect((await call("/models", key)).status).toBe(200);
  });

  it("refuses a key that has expired, which enabling does not change", async () => {
    const { call } = await serve();
    const { id, key } = await otherKey({ data }, { expiresAtMs: Date.now() - 1 });
    expect(await call("/models", key)).toMatchObject({ body: { error: { code: "API_KEY_DISABLED" } } });
    const { stdout, stderr } = await admin("keys", "enable", id);
    expect(stdout).toContain("expired");
    expect(stderr).toContain("has expired");
    expect((await call("/models", key)).status).toBe(401);
  });

  it("takes a batch after a top-up that it refused before, and the ledger tells the story", async () => {
    const { call } = await serve();
    await ask("accounts", "create", "team");
    const { key } = await ask("keys", "create", "--account", "team");
    expect(await call("", key, REQUEST)).toMatchObject({
      status: 402,
      body: { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE" } },
    });
    await ask("accounts", "top-up", "team", String(HOLD_USD));
    const { status, body: batch } = await call("", key, REQUEST);
    expect(status).toBe(200);
    await expect.poll(async () => (await call(`/${batch.id}`, key)).body.status).toBe("completed");

    const rest = 0.0067;
    const [local, team] = await ask("accounts", "list");
    expect([local, team]).toMatchObject([
      { name: "default", balance: 1000 },
      { name: "team", balance: rest, held: 0 },
    ]);
    const entry = (kind: string, amount: number, balance_change: number, held_change: number) => ({
      seq: expect.any(Number),
      kind,
      amount,
      balance_change,
      held_change,
      account: "team",
      batch_id: kind === "top_up" ? null : batch.id,
      request_id: expect.stringMatching(kind === "top_up" ? /^top_up:topup_/ : `^${kind}:${batch.id}$`),
      created_at: expect.any(Number),
    });
    const ofBatch = [
      entry("hold", HOLD_USD, -HOLD_USD, HOLD_USD),
      entry("capture", PRICE_USD, 0, -PRICE_USD),
      entry("release", rest, rest, -rest),
    ];
    expect(await ledgerOf("--batch", batch.id)).toEqual(ofBatch);
    const ofTeam = [entry("top_up", HOLD_USD, HOLD_USD, 0), ...ofBatch];
    expect(await ledgerOf("--account", "team")).toEqual(ofTeam);
    const all = await ledgerOf();
    expect(all.slice(1)).toEqual(ofTeam);
    const order = all.map(({ seq }: { seq: number }) => seq);
    expect(order).toEqual([...order].sort((a: number, b: number) => a - b));
    expect((await admin("check")).code).toBe(0);
  });
});

describe("imgbatch admin ledger", () => {
  it("is a table with the balance after each entry", async () => {
    await ask("accounts", "create", "team", "--balance", "5");
    await ask("accounts", "top-up", "team", "10.25");
    const { stdout } = await admin("ledger");
    expect(stdout.replaceAll(/\d{4}-\S+Z/g, "TIME")).toBe(
      [
        "seq  time                  account  kind     change   held  balance  for",
        "  1  TIME  team     top_up   +$5.00  $0.00    $5.00",
        "  2  TIME  team     top_up  +$10.25  $0.00   $15.25",
        "",
      ].join("\n"),
    );
  });
});

describe("what cannot be done", () => {
  it("is exit 2, names the argument and what would be right, and changes nothing", async () => {
    await ask("accounts", "create", "team", "--balance", "1");
    const before = [await ledgerOf(), await ask("keys", "list")];
    const secret = `imgb_${"x".repeat(43)}`;
    const usd = "with at most 6 decimals, such as 5 or 0.25";
    const wrong: [string[], string, string][] = [
      [["accounts", "create", "team"], '<name> "team"', "write another"],
      [["accounts", "create", "a\tb"], "<name>", "control characters"],
      [["accounts", "create", "x", "--balance", "1.0000001"], '--balance "1.0000001"', usd],
      [["accounts", "create", "x", "--balance", "-1"], '--balance "-1"', usd],
      [["accounts", "create", "x", "--balance", "9007199254.740992"], "--balance", "to 9007199254.740991"],
      [["accounts", "top-up", "team", "0"], '<usd> "0"', "from 0.000001"],
      [["accounts", "top-up", "team", "-5"], '<usd> "-5"', usd],
      [["accounts", "top-up", "team", "9007199254.740991"], "<usd>", "can take at most $9007199253.740991"],
      [["accounts", "top-up", "tema", "5"], '<name> "tema"', "write one of team"],
      [["keys", "create", "--account", "tema"], '--account "tema"', "write one of team"],
      [["keys", "create", "--group", "gold"], '--group "gold"', "write one of default"],
      [["keys", "create", "--name", " "], '--name " "', "1 to 100 characters"],
      [["keys", "create", "--expires", "soon"], '--expires "soon"', "such as 2030-01-31"],
      [["keys", "create", "--expires", "2020-01-01"], '--expires "2020-01-01"', "in the future"],
      [["keys", "disable", "key_0"], '<id> "key_0"', "admin keys list"],
      [["keys", "enable", secret], "<id>", "this is a key, not its id"],
      [["ledger", "--account", "tema"], '--account "tema"', "write one of team"],
      [["ledger", "--batch", "imgbatch_0"], '--batch "imgbatch_0"', "no batch"],
    ];
    for (const [args, argument, advice] of wrong) {
      const { code, stdout, stderr } = await admin(...args);
      expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: "" });
      expect(stderr).toContain(argument);
      expect(stderr).toContain(advice);
      expect(stderr).not.toContain(secret);
    }
    expect([await ledgerOf(), await ask("keys", "list")]).toEqual(before);
  });
});

describe("a directory that no service has used yet", () => {
  it("is prepared by making an account or a key, which says so, and then served", async () => {
    data = join(data, "new");
    const { stdout, stderr } = await admin("keys", "create");
    expect(stderr).toContain(`created the data directory: ${data}`);
    const { call } = await serve();
    expect((await call("/models", stdout.trim())).status).toBe(200);
    expect(await ask("accounts", "list")).toMatchObject([{ name: "default", balance: 1000 }]);
  });

  it("is neither made nor taken for a data directory by any other command", async () => {
    data = join(data, "new");
    const others = [
      ["accounts", "list"],
      ["accounts", "top-up", "team", "5"],
      ["keys", "create", "--account", "team"],
      ["keys", "list"],
      ["keys", "disable", "key_0"],
      ["ledger"],
      ["check"],
    ];
    for (const args of others) {
      const { code, stderr } = await admin(...args);
      expect(code).toBe(2);
      expect(stderr).toContain("is not a data directory");
    }
    expect(existsSync(data)).toBe(false);
    data = BIN;
    const { code, stderr } = await admin("accounts", "create", "team");
    expect(code).toBe(2);
    expect(stderr).toContain("cannot be made a data directory");
  });
});

/** The directory of a service that made two images, a bucket whose keys are in the environment, and how to ask. */
async function prepared() {
  const service = await startTestService({ providers: [new FakeProvider()] });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await service.until(id);
  await service.close(0);
  const { settings } = await fakeBucket();
  const { endpoint, region, accessKeyId, secretAccessKey } = settings;
  watchSecret(secretAccessKey);
  vi.stubEnv("AWS_ACCESS_KEY_ID", accessKeyId);
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", secretAccessKey);
  const config = join(service.data, "imgbatch.config.json");
  await writeFile(config, JSON.stringify({ storage: { s3: { endpoint, region } } }));
  const cwd = service.data;
  const admin = (...args: string[]) =>
    runInProcess(["admin", ...args, "--data", service.data, "--config", config], { cwd });
  return { admin, data: service.data };
}

describe("imgbatch admin move", () => {
  it.skipIf(!hasPostgres)(
    "[MOVE-1] moves to a database and a bucket, and says what to configure",
    async () => {
      const { admin, data } = await prepared();
      const to = ["--database", await newDatabase(), "--blobs", "s3://images/imgbatch"];
      const { code, stdout, stderr } = await admin("move", ...to, "--json");
      expect({ code, report: JSON.parse(stdout) }).toMatchObject({
        code: 0,
        report: { data, blobs: "s3://images/imgbatch", files: 2, problems: [] },
      });
      expect(stderr).toContain('"storage": {"database":"postgres://');
      expect((await admin("check", ...to, "--json")).json()).toMatchObject({ images: 2, problems: [] });
    },
  );

  it("[MOVE-1] moves the files alone, and other commands name the new place", async () => {
    const { admin, data } = await prepared();
    const moved = await admin("move", "--blobs", "s3://images");
    expect(moved).toMatchObject({ code: 0 });
    expect(moved.stdout).toContain("2 files (");
    expect(moved.stdout).toContain(`the old data stays in ${data}`);
    const refused = await admin("check", "--json");
    expect(refused.code).toBe(2);
    expect(refused.json().error).toMatchObject({
      code: "INVALID_CONFIG",
      message: expect.stringContaining("was moved to s3://images"),
    });
    expect(refused.stderr).toContain("--blobs s3://images");
  });

  it("needs a new place, and a directory that has data", async () => {
    const { admin } = await prepared();
    const nowhere = await admin("move", "--json");
    expect(nowhere.code).toBe(2);
    expect(nowhere.stderr).toContain("add --database postgres://host/database --blobs s3://bucket/prefix");
  });
});
