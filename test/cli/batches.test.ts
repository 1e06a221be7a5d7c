import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { batchLine } from "../../src/cli/output/batches.ts";
import { readBatch } from "../../src/client/answers.ts";
import type { Cli } from "../support/cli.ts";
import type { FakeOptions } from "../support/fake-service.ts";
import { petsCli } from "./pets.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

/** A run of some images in `pets-images`, not waited for. */
async function bench(options: FakeOptions = {}, flags: string[] = []): Promise<Cli> {
  const cli = await petsCli(options);
  expect((await cli.here(["submit", "pets.jsonl", "-d", "-n", "pets", ...flags])).code).toBe(0);
  return cli;
}

const lines = (text: string) => text.split("\n").slice(0, -1);

it("list prints a record a line, newest first, with as many fields each", async () => {
  const cli = await bench({ statuses: ["running"] }, ["--max-batch", "1"]);
  const { code, stdout } = await cli.here(["list"]);
  expect(code).toBe(0);
  const records = lines(stdout).map((line) => line.split("\t"));
  expect(records.map(([id]) => id)).toEqual(cli.fake.batches.map(({ id }) => id).reverse());
  for (const record of records)
    expect(record.slice(1, 6).concat(record.slice(7))).toEqual(["queued", "0", "0", "1", "0.0335", "pets"]);
});

it("list gives its filters to the service, and says when there is more", async () => {
  const cli = await bench({ statuses: ["running"] }, ["--max-batch", "1"]);
  const two = await cli.here(["list", "--limit", "2", "--json"]);
  expect(two.json()).toMatchObject({ ok: true, batches: [{}, {}], has_more: true });
  expect(two.stderr).toContain("there are more");
  expect((await cli.here(["list", "--all", "--json"])).json()).toMatchObject({ has_more: false });
  const flags = ["--status", "running", "--name", "a&b", "--downloaded", "no", "--from", "2030-01-31"];
  const { code, stdout } = await cli.here(["list", ...flags, "--to", "24h"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
  const { path } = cli.fake.requests.at(-1) ?? { path: "" };
  const query = Object.fromEntries(new URL(path, "http://x").searchParams);
  expect(query).toMatchObject({
    status: "running",
    task_name: "a&b",
    downloaded: "false",
    from: "2030-01-31",
    to: expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:]+Z$/),
  });
  await cli.here(["list", "--downloaded"]);
  expect(cli.fake.requests.at(-1)?.path).toContain("downloaded=true");
  expect((await cli.here(["list", "--from", "yesterday"])).code).toBe(2);
  const wrong = await cli.here(["list", "--status", "runing"]);
  expect({ code: wrong.code, stderr: wrong.stderr }).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("Did you mean running?"),
  });
});

it("items tells what became of each image, over all batches of a run", async () => {
  const cli = await bench({ failing: /dog/ }, ["--max-batch", "2"]);
  const { stdout } = await cli.here(["items", "pets-images"]);
  expect(lines(stdout).map((line) => line.split("\t").slice(0, 4))).toEqual([
    ["cat", "success", "1", ""],
    ["dog", "failed", "0", "PROVIDER_ITEM_FAILED"],
    ["cow", "success", "1", ""],
  ]);
  const failed = await cli.here(["items", "pets-images", "--status", "failed", "--json"]);
  expect(failed.json()).toMatchObject({
    ok: true,
    has_more: false,
    items: [{ custom_id: "dog", batch_id: cli.fake.batches[0]?.id }],
  });
  expect((await cli.here(["items", "imgbatch_none"])).code).toBe(10);
});

it("status shows the batches that are there, and ends with 10 when one is not", async () => {
  const cli = await bench({ statuses: ["running"] });
  const { code, stdout, stderr, json } = await cli.here(["status", "imgbatch_none", "pets-images", "--json"]);
  expect(code).toBe(10);
  expect(stdout).toContain(cli.fake.batches[0]?.id);
  expect(json().batches).toHaveLength(1);
  expect(stderr).toContain("There is no batch imgbatch_none");
});

it("watch follows several batches to their end with a line for each change, and has their exit code", async () => {
  const cli = await bench({ statuses: ["running", "running", "completed"], failing: /dog/ }, [
    "--max-batch",
    "2",
  ]);
  const { code, stdout, stderr } = await cli.here(["watch", "pets-images", "--interval", "20ms"]);
  expect(code).toBe(4);
  const said = lines(stdout).map((line) => line.split(/ {2}/).slice(0, 2));
  for (const { id } of cli.fake.batches) {
    expect(said).toContainEqual([id, "running"]);
    expect(said.filter(([each, status]) => each === id && status === "completed")).toHaveLength(1);
  }
  expect(stderr).toMatch(/\nnext: imgbatch download pets-images --base-url [^\n]*\n$/);
});

it("watch without an id follows what runs; when nothing does, it says so", async () => {
  const cli = await bench({ statuses: ["running", "completed"] });
  const first = await cli.here(["watch", "--json", "--interval", "20ms"]);
  expect(first.code).toBe(0);
  expect(first.json()).toMatchObject({ ok: true, counts: { total: 3, success: 3, failed: 0 } });
  const second = await cli.here(["watch"]);
  expect(second).toMatchObject({
    code: 0,
    stdout: "",
    stderr: expect.stringMatching(
      /^nothing is running\nto list ended batches, too:\nnext: imgbatch list .*\n$/,
    ),
  });
});

it("watch ends when its reader has gone", async () => {
  const cli = await bench({ statuses: ["running"] });
  const { child, ended } = cli.start(["watch", "pets-images", "--interval", "20ms"]);
  child.stdout.destroy();
  const { code, stderr } = await ended;
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
});

it.skipIf(!existsSync("/dev/full"))("results that cannot be written are exit 9", () => {
  const bin = fileURLToPath(new URL("../../bin/imgbatch.cjs", import.meta.url));
  for (const command of ["--help", "list --help --json"]) {
    const script = `"${process.execPath}" "${bin}" ${command} 2>&1 >/dev/full`;
    const { status, stdout } = spawnSync("sh", ["-c", script]);
    expect({ status, said: String(stdout) }).toMatchObject({
      status: 9,
      said: expect.stringContaining("ENOSPC"),
    });
  }
});

it("cancel says what was released and what stays billed; the second time there is nothing to do", async () => {
  const cli = await bench({ statuses: ["running"] });
  const { code, stdout, stderr } = await cli.here(["cancel", "pets-images"]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^imgbatch_\w+ {2}cancelled {2}1\/3 images {2}2 failed/);
  expect(stderr).toContain("1 of 3 images were finished and stay, billed $0.03; $0.09 released");
  expect(stderr).toContain("1 image on disk and verified in pets-images\n");
  expect(stderr).toMatch(/next: imgbatch open pets-images\n$/);
  const again = await cli.here(["cancel", "pets-images", "--json"]);
  expect(again.json()).toMatchObject({ ok: true, cancelled: [] });
  expect(again.stderr).toContain("was already cancelled");
  expect(cli.fake.count(/^POST .*cancel/)).toBe(1);
});

it("cancel of a run that was split stops every batch of it, also when the service says little", async () => {
  const cli = await bench({ statuses: ["running"], foreign: true }, ["--max-batch", "1"]);
  const { code, json } = await cli.here(["cancel", "pets-images", "--json"]);
  expect(code).toBe(0);
  expect(json().cancelled).toEqual(cli.fake.batches.map(({ id }) => id));
  expect(json().released).toBeNull();
});

it("cancel takes several runs and ids, and stops each batch once", async () => {
  const cli = await bench({ statuses: ["running"] });
  await cli.here(["submit", "pets.jsonl", "-o", "more", "-d", "--new"]);
  const [first, second] = cli.fake.batches.map(({ id }) => id);
  const { code, json } = await cli.here(["cancel", "pets-images", second ?? "", "more", "--json"]);
  expect([code, json().cancelled]).toEqual([0, [first, second]]);
  expect(cli.fake.count(/^POST .*cancel/)).toBe(2);
  expect((await cli.here(["cancel", "more", "pets-images"])).stderr).toMatch(
    /next: imgbatch open more pets-images\n$/,
  );
});

it("delete needs to know what; outputs, then the record, and the files here stay", async () => {
  const cli = await bench();
  await cli.here(["wait", "pets-images"]);
  await cli.here(["download", "pets-images"]);
  expect((await cli.here(["delete", "pets-images"])).code).toBe(2);
  expect(cli.fake.count(/^DELETE/)).toBe(0);
  const both = await cli.here(["delete", "pets-images", "--outputs", "--record", "--json"]);
  expect(both.json()).toMatchObject({ ok: true, deleted: [expect.any(String)], outputs: true, record: true });
  expect(
    cli.fake.requests.filter(({ method }) => method === "DELETE").map(({ path }) => path.split("/").at(-1)),
  ).toEqual(["outputs", expect.stringMatching(/^imgbatch_/)]);
  expect(existsSync(join(cli.cwd, "pets-images", "images", "cat.png"))).toBe(true);
  expect((await cli.here(["delete", "pets-images", "--record"])).code).toBe(10);
});

it("what runs cannot be deleted: exit 6", async () => {
  const cli = await bench({ statuses: ["running"] });
  expect((await cli.here(["delete", "pets-images", "--record"])).code).toBe(6);
});

it("with a submission that is not known, cancel, items and delete do what they can and end with 7", async () => {
  const cli = await petsCli({ statuses: ["running"] });
  cli.fake.fault(/^POST/, { lie: (answer) => answer }, { lie: (answer) => answer });
  cli.fake.always(/^POST [^?]*batches$/, { reset: "after" });
  const submitted = await cli.here(["submit", "pets.jsonl", "-d", "--max-batch", "1"]);
  expect(submitted.code).toBe(7);
  const known = cli.fake.batches[0]?.id ?? "";
  const says = /batch(es)? (2|3|2, 3) of 3 may exist without being known here: run its submit command again/;

  const items = await cli.here(["items", "pets-images", "--json"]);
  expect(items.code).toBe(7);
  expect(items.json()).toMatchObject({ ok: false, exit_code: 7, error: { code: "SUBMISSION_UNKNOWN" } });
  expect(JSON.stringify(items.json().items)).toContain(known);
  expect(items.stderr).toMatch(says);

  const cancelled = await cli.here(["cancel", "pets-images"]);
  expect(cancelled.code).toBe(7);
  expect(cancelled.stdout).toContain(known);
  expect(cancelled.stderr).toMatch(says);
  expect(cli.fake.batches[0]?.wire.status).toBe("cancelled");

  const deleted = await cli.here(["delete", "pets-images", "--outputs", "--json"]);
  expect(deleted.code).toBe(7);
  expect(deleted.json().deleted).toContain(known);
  expect(cli.fake.batches[0]?.wire.status).toBe("output_deleted");
});

it("status, watch and download say that a batch waits, and a waiting that is no object is none", async () => {
  const cli = await bench({ statuses: ["running"] });
  const [batch] = cli.fake.batches;
  const waiting = { code: "PROVIDER_BILLING", message: "google: No credit.", until: null };
  Object.assign(batch?.wire ?? {}, { waiting });
  const status = await cli.here(["status", "pets-images"]);
  expect(lines(status.stdout)[0]).toMatch(/ {2}waiting for google: No credit$/);
  const download = await cli.here(["download", "pets-images"]);
  expect(download.stderr).toContain("has not ended yet (running, waiting for google: No credit)");
  const looks = () => cli.fake.count(/^GET .*imgbatch_\w+$/);
  const before = looks();
  // The line is written before the second look.
  endLimitWhen(() => looks() > before + 1);
  const watch = await cli.here(["watch", "pets-images", "--timeout", LIMIT]);
  expect([watch.code, watch.stdout]).toEqual([
    124,
    expect.stringContaining("waiting for google: No credit\n"),
  ]);
  Object.assign(batch?.wire ?? {}, { waiting: "soon" });
  expect((await cli.here(["status", "pets-images"])).stdout).not.toContain("waiting");
});

it("the line of a batch says that it is a job of a vendor's API", () => {
  const wire = { id: "imgbatch_1", status: "running", item_count: 3, success_count: 1, fail_count: 0 };
  const line = (source?: string) => {
    const batch = readBatch({ ...wire, task_name: "foxes", source });
    return batch && batchLine(batch);
  };
  expect(line("native")).toBe("imgbatch_1  running  1/3 images  0 failed  foxes  (native job)");
  expect(line("batch")).toBe("imgbatch_1  running  1/3 images  0 failed  foxes");
  expect(line()).toBe(line("batch"));
});
