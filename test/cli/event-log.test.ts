import { EventEmitter } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { eventLineSchema } from "../../src/contract/events.ts";
import { type Cli, createCli } from "../support/cli.ts";
import type { FakeOptions } from "../support/fake-service.ts";
import { gate } from "../support/gate.ts";

async function bench(options: FakeOptions = {}): Promise<Cli> {
  const cli = await createCli(options);
  await writeFile(
    join(cli.cwd, "p.jsonl"),
    '{"custom_id":"cat","prompt":"cat"}\n{"custom_id":"dog","prompt":"dog"}',
  );
  return cli;
}

/** The events of a stream, each checked by the published schema. */
function read(text: string) {
  expect(text.endsWith("\n")).toBe(true);
  return text
    .trimEnd()
    .split("\n")
    .map((line) => eventLineSchema.parse(JSON.parse(line)));
}

it("[CLI-28] --events writes every step of a run, one object a line, and stdout keeps the result", async () => {
  const cli = await bench({ statuses: ["running", "completed"], failing: /dog/ });
  cli.fake.fault(/^GET .*models/, { status: 503, headers: { "retry-after": "0" } });
  const { code, stdout } = await cli.here(["submit", "p.jsonl", "--events", "events.ndjson"]);
  expect({ code, stdout }).toEqual({ code: 4, stdout: "p-images\n" });
  const events = read(await readFile(join(cli.cwd, "events.ndjson"), "utf8"));
  expect([...new Set(events.map(({ event }) => event))]).toEqual([
    "run_started",
    "retry",
    "run_planned",
    "batch_created",
    "progress",
    "file_saved",
    "item_ended",
    "run_ended",
  ]);
  expect(events.at(-1)).toMatchObject({ ok: false, exit_code: 4, error: { code: "ITEMS_FAILED" } });
  expect(events.filter(({ event }) => event === "item_ended")).toMatchObject([
    { custom_id: "cat", status: "success", error: null },
    { custom_id: "dog", status: "failed", error: { code: "PROVIDER_ITEM_FAILED" } },
  ]);
});

it("[CLI-28] --events - puts the events and nothing else on stdout, to the end, also when the command fails", async () => {
  const cli = await bench();
  const good = read((await cli.run(["submit", "p.jsonl", "--events", "-"])).stdout);
  expect(good.map(({ event }) => event)).toContain("file_saved");
  const again = read((await cli.here(["submit", "p.jsonl", "--events", "-"])).stdout);
  expect(again.map(({ event }) => event)).toContain("batch_replayed");
  expect(again.map(({ event }) => event)).not.toContain("file_saved");
  const gone = read((await cli.here(["status", "imgbatch_none", "--events", "-"])).stdout);
  expect(gone.map(({ event }) => event)).toEqual(["run_started", "run_ended"]);
  expect(gone.at(-1)).toMatchObject({ ok: false, exit_code: 10, error: { code: "BATCH_IMAGE_NOT_FOUND" } });
});

it("[CLI-28] an interruption is the last event", async () => {
  const cli = await bench({ statuses: ["running"] });
  const signals = new EventEmitter();
  const ended = cli.here(["submit", "p.jsonl", "--events", "-"], { signals });
  await expect.poll(() => cli.fake.count(/^GET .*imgbatch_\w+$/)).toBeGreaterThan(0);
  signals.emit("SIGINT", "SIGINT");
  expect(read((await ended).stdout).at(-1)).toMatchObject({ exit_code: 130, error: { code: "INTERRUPTED" } });
});

it("[CLI-28] --events - with --json, and a file that cannot be written, are exit 2 and send nothing", async () => {
  const cli = await bench();
  const both = await cli.here(["submit", "p.jsonl", "--json", "--events", "-"]);
  expect({ code: both.code, error: both.json().error?.code }).toEqual({ code: 2, error: "USAGE" });
  expect((await cli.here(["submit", "p.jsonl", "--events", "no/such/file"])).code).toBe(2);
  expect(cli.fake.requests).toHaveLength(0);
});

it("--cancel-on-interrupt cancels what was submitted, and says so in the one document", async () => {
  const cli = await bench({ statuses: ["running"] });
  const signals = new EventEmitter();
  const ended = cli.here(["submit", "p.jsonl", "--cancel-on-interrupt", "--json"], { signals });
  await expect.poll(() => cli.fake.count(/^GET .*imgbatch_\w+$/)).toBeGreaterThan(0);
  signals.emit("SIGTERM", "SIGTERM");
  const { code, json, stderr } = await ended;
  expect({ code, status: cli.fake.batches[0]?.wire.status }).toEqual({ code: 143, status: "cancelled" });
  expect(json()).toMatchObject({ ok: false, exit_code: 143 });
  expect(json().error?.message).toMatch(/^Interrupted; cancelled imgbatch_/);
  expect(stderr).toContain("1 of 2 images were finished and stay, billed $0.03");
});

/** Starts a submission of two batches, up to where the answer of the second is held back. */
async function holdAnswer(flags: readonly string[]) {
  const cli = await bench({ statuses: ["running"] });
  const { promise: held, open } = gate();
  cli.fake.fault(/^POST .*batches$/, { lie: (answer) => answer }, { held });
  const { child, ended } = cli.start(["submit", "p.jsonl", "--max-batch", "1", ...flags]);
  const onWaiting = (then: () => void) =>
    child.stderr.on("data", (text) => {
      if (String(text).includes("waiting for the service to answer")) then();
    });
  await expect.poll(() => cli.fake.batches.length).toBe(2);
  return { cli, child, ended, open, onWaiting };
}

it("what was sent is waited for, so that a batch whose answer is under way is cancelled too", async () => {
  const { cli, child, ended, open, onWaiting } = await holdAnswer(["--cancel-on-interrupt"]);
  onWaiting(open);
  child.kill("SIGINT");
  const { code, stderr } = await ended;
  const [first, second] = cli.fake.batches;
  expect([code, first?.wire.status, second?.wire.status]).toEqual([130, "cancelled", "cancelled"]);
  expect(stderr).toContain(`error: Interrupted; cancelled ${first?.id}, ${second?.id}.`);
});

it("a second signal does not wait for the answer, and leaves no advice that pays twice", async () => {
  const { cli, child, ended, onWaiting } = await holdAnswer(["--cancel-on-interrupt"]);
  onWaiting(() => child.kill("SIGINT"));
  child.kill("SIGINT");
  const { code, stderr } = await ended;
  expect([code, cli.fake.count(/cancel/)]).toEqual([130, 0]);
  expect(stderr).not.toContain("--new");
});

it("a batch whose answer never came is not cancelled, and that it may exist is said", async () => {
  const { cli, child, ended, onWaiting } = await holdAnswer(["--cancel-on-interrupt"]);
  onWaiting(() => cli.fake.breakOff());
  child.kill("SIGTERM");
  const { code, stderr } = await ended;
  expect(code).toBe(143);
  expect(stderr).toContain(`cancelled ${cli.fake.batches[0]?.id}; batch 2 of 2 may exist`);
  expect(stderr).toMatch(
    /\nrun the same command again: it finds every batch by its key .* nothing is paid twice\nnext: /,
  );
});

it("[CLI-11] a create that is interrupted under way may have been made: that is said, and the same command finds it", async () => {
  const { cli, child, ended } = await holdAnswer([]);
  child.kill("SIGINT");
  const { code, stderr } = await ended;
  expect(code).toBe(130);
  expect(stderr).toContain(`Interrupted; ${cli.fake.batches[0]?.id} goes on; batch 2 of 2 may exist`);
  expect(stderr).toMatch(
    /\nrun the same command again: it finds every batch by its key .* nothing is paid twice\nnext: /,
  );
  const runState = JSON.parse(await readFile(join(cli.cwd, "p-images", "imgbatch.json"), "utf8"));
  expect(runState.batches.map(({ state }: { state: string }) => state)).toEqual(["created", "unknown"]);
  expect((await cli.here(["submit", "p.jsonl", "--max-batch", "1", "--detach"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(2);
});
