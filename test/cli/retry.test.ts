import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import type { FakeOptions } from "../support/fake-service.ts";
import { petsCli } from "./pets.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

/** A run whose dogs have failed. */
async function bench(options: FakeOptions = {}, prompts?: string[], flags: string[] = []): Promise<Cli> {
  const cli = await petsCli({ failing: /dog/, ...options }, prompts);
  await cli.here(["submit", "pets.jsonl", ...flags]);
  return cli;
}

const runState = async (cli: Cli) =>
  JSON.parse(await readFile(join(cli.cwd, "pets-images", "imgbatch.json"), "utf8"));
const sent = (cli: Cli) =>
  cli.fake.requests.filter(({ method }) => method === "POST").map(({ body }) => JSON.parse(body));

it("[RETRY-1] makes the failed images anew, linked to their batch, into the same directory", async () => {
  const cli = await bench({}, undefined, ["-n", "spring", "--mime-type", "image/webp", "--metadata", "a=1"]);
  cli.fake.options.failing = /none/;
  const { code, stdout, json } = await cli.here(["retry", "pets-images", "--json"]);
  expect({ code, out: stdout.length > 0 }).toEqual({ code: 0, out: true });
  expect(json()).toMatchObject({
    counts: { total: 3, success: 3, failed: 0 },
    fetched_count: 1,
    retry: null,
  });
  expect(sent(cli)[1]).toEqual({
    model: "vendorx-3.1-flash-image",
    task_name: "spring",
    parent_batch_id: cli.fake.batches[0]?.id,
    metadata: { a: "1" },
    response_mime_type: "image/webp",
    items: [{ custom_id: "dog", prompt: "a dog" }],
  });
  const images = await readdir(join(cli.cwd, "pets-images", "images"));
  expect(images.sort()).toEqual(["cat.png", "cow.png", "dog.png"]);
  const results = (await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8")).trim().split("\n");
  expect(results.map((line) => JSON.parse(line).custom_id)).toEqual(["cat", "dog", "cow"]);
});

it("--detach makes them and does not wait: download fetches them", async () => {
  const cli = await bench();
  cli.fake.options.failing = /none/;
  const { code, stdout } = await cli.here(["retry", "pets-images", "-d"]);
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout: `${cli.fake.batches.map(({ id }) => id).join("\n")}\n`,
  });
  expect((await runState(cli)).finished_at).toBeNull();
  // Once it has ended, another one makes what has failed again.
  const none = await cli.here(["retry", "pets-images", "-d"]);
  expect([none.code, none.stderr]).toEqual([0, expect.stringContaining("nothing to retry")]);
  expect((await cli.here(["download", "pets-images", "--json"])).json()).toMatchObject({
    counts: { success: 3, failed: 0, unknown: 0, missing: 0 },
  });
});

it("[RETRY-1] afterwards every command takes the run as a whole, and nothing is sent again", async () => {
  const cli = await bench();
  cli.fake.options.failing = /none/;
  await cli.here(["retry", "pets-images"]);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  expect((await cli.here(["wait", "pets-images"])).code).toBe(0);
  expect((await cli.here(["download", "pets-images", "--json"])).json()).toMatchObject({
    ok: true,
    fetched_count: 0,
  });
  const items = (await cli.here(["items", "pets-images"])).stdout.trim().split("\n");
  expect(items.map((line) => line.split("\t").slice(0, 2))).toEqual([
    ["cat", "success"],
    ["dog", "success"],
    ["cow", "success"],
  ]);
  const nothing = await cli.here(["retry", "pets-images"]);
  expect({ code: nothing.code, stdout: nothing.stdout }).toEqual({ code: 0, stdout: "pets-images\n" });
  expect(nothing.stderr).toContain("nothing to retry");
  expect(cli.fake.batches).toHaveLength(2);
});

it("[RETRY-1] what fails again can be retried again; a run of several batches is retried for each", async () => {
  const cli = await bench({}, ["dog1", "cat", "dog2", "cow"], ["--max-batch", "2"]);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(4);
  cli.fake.options.failing = /none/;
  expect((await cli.here(["retry", "pets-images"])).code).toBe(0);
  const parents = sent(cli).map((body) => body.parent_batch_id);
  const ids = cli.fake.batches.map(({ id }) => id);
  expect(parents).toEqual([undefined, undefined, ids[0], ids[1], ids[2], ids[3]]);
  expect((await runState(cli)).batches.map((batch: { round: number }) => batch.round)).toEqual([
    0, 0, 1, 1, 2, 2,
  ]);
});

it("[RETRY-1] an id that its counter made too long for a request is sent under another name and kept under its own", async () => {
  const id = `dog${"x".repeat(125)}`;
  const cli = await createCli({ failing: /dog/ });
  await writeFile(
    join(cli.cwd, "pets.jsonl"),
    JSON.stringify({ custom_id: id, prompt: "a dog", output_count: 2 }),
  );
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(5);
  cli.fake.options.failing = /none/;
  const { code, json } = await cli.here(["retry", "pets-images", "--json"]);
  expect(code).toBe(0);
  expect((json().items as { custom_id: string }[]).map((item) => item.custom_id)).toEqual([
    `${id}_01`,
    `${id}_02`,
  ]);
  const again = await cli.here(["download", "pets-images", "--json"]);
  expect(again.json()).toMatchObject({ ok: true, fetched_count: 0 });
});

const REFUSALS = [
  "SAFETY_BLOCKED",
  "PROHIBITED_CONTENT",
  "IMAGE_SAFETY",
  "RECITATION",
  "BLOCKLIST",
  "SPII",
  "content_policy_violation",
  "ResponsibleAIPolicyViolation",
];

it("[RETRY-2] what was refused for its prompt is sent again only when asked, whatever it is called", async () => {
  const dogs = REFUSALS.map((_, i) => `dog${i}`);
  const cli = await bench({}, ["cat", ...dogs]);
  cli.fake.always(/^GET .*\/items\?/, {
    lie: (answer) => {
      const page = JSON.parse(answer.body.toString());
      for (const { custom_id, error } of page.data) if (error) error.code = REFUSALS[dogs.indexOf(custom_id)];
      return { ...answer, body: Buffer.from(JSON.stringify(page)) };
    },
  });
  const { code, stderr } = await cli.here(["retry", "pets-images"]);
  expect(code).toBe(4);
  expect(stderr).toContain(`${REFUSALS.length} images were refused because of the prompt`);
  expect(cli.fake.batches).toHaveLength(1);
  cli.fake.options.failing = /none/;
  expect((await cli.here(["retry", "pets-images", "--include-refused"])).code).toBe(0);
  expect(cli.fake.batches[1]?.items.map(({ custom_id }) => custom_id)).toEqual(dogs);
});

it("a retry whose answer was lost, or that was interrupted, goes on with the same batch", async () => {
  const cli = await bench();
  cli.fake.options.statuses = ["running"];
  cli.fake.options.failing = /none/;
  for (let i = 0; i < 4; i++) cli.fake.fault(/^POST/, { reset: "after" });
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  expect(cli.fake.batches).toHaveLength(2);
  expect((await runState(cli)).batches[1]).toMatchObject({ state: "unknown", round: 1, images: ["dog"] });
  const slow = await cli.here(["retry", "pets-images", "--timeout", "1s"]);
  expect(slow.code).toBe(124);
  for (const batch of cli.fake.batches) batch.statuses = ["completed"];
  const { code, stderr } = await cli.here(["retry", "pets-images"]);
  expect(code).toBe(0);
  expect(stderr).toContain("an earlier retry is not finished: continuing it");
  expect(cli.fake.batches).toHaveLength(2);
});

it("a retry that the service refuses leaves the run as it was", async () => {
  const cli = await bench();
  const body = { error: { code: "BATCH_IMAGE_INSUFFICIENT_BALANCE", message: "No money." } };
  cli.fake.fault(/^POST/, { status: 402, body });
  expect((await cli.here(["retry", "pets-images"])).code).toBe(8);
  const { batches, finished_at } = await runState(cli);
  expect({ count: batches.length, isFinished: finished_at !== null }).toEqual({ count: 1, isFinished: true });
  expect((await cli.here(["retry", "pets-images", "--max-cost", "0.01"])).code).toBe(8);
  expect(cli.fake.batches).toHaveLength(1);
});

it("an id alone, a directory without prompts and a run that goes on cannot be retried", async () => {
  const cli = await bench();
  const id = cli.fake.batches[0]?.id ?? "";
  const byId = await cli.here(["retry", id]);
  expect(byId.code).toBe(2);
  expect(byId.stderr).toContain("This needs the output directory of the run, not the id");
  expect((await cli.here(["retry", "nowhere"])).stderr).toContain("There is no run directory nowhere.");
  await cli.here(["download", id, "-o", "copy"]);
  expect((await cli.here(["retry", "copy"])).code).toBe(2);
  const running = await createCli({ statuses: ["running"] });
  await writeFile(join(running.cwd, "p.jsonl"), '{"prompt":"a"}');
  await running.here(["submit", "p.jsonl", "-d"]);
  expect((await running.here(["retry", "p-images"])).code).toBe(7);
});

it("--dry-run counts and estimates, and submits nothing", async () => {
  const cli = await bench();
  const { code, stdout } = await cli.here(["retry", "pets-images", "--dry-run"]);
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout:
      "1 image to make again with vendorx-3.1-flash-image\n  1 image, vendorx-3.1-flash-image, 1K: $0.0335 each\nestimated cost $0.04\n",
  });
  expect(cli.fake.batches).toHaveLength(1);
});

/** Deletes the outputs of a run with a failed dog, and one file of it here. */
async function deleted(): Promise<Cli> {
  const cli = await bench();
  cli.fake.options.failing = /none/;
  expect((await cli.here(["delete", "pets-images", "--outputs"])).code).toBe(0);
  await rm(join(cli.cwd, "pets-images", "images", "cat.png"));
  return cli;
}

it("deleted outputs and a missing file keep no failed image from being retried", async () => {
  const cli = await deleted();
  const plain = await cli.here(["retry", "pets-images", "--json"]);
  expect([plain.code, plain.json().counts]).toEqual([
    10,
    { total: 3, success: 2, failed: 0, unknown: 0, missing: 1 },
  ]);
  expect(sent(cli)[1]).toMatchObject({ items: [{ custom_id: "dog" }] });
  expect(plain.stderr).toMatch(/paid again:\nnext: imgbatch retry --include-lost pets-images /);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(10);
  expect(cli.fake.batches).toHaveLength(2);
  const lost = await cli.here(["retry", "--include-lost", "pets-images", "--json"]);
  expect([lost.code, lost.json().counts]).toEqual([
    0,
    { total: 3, success: 3, failed: 0, unknown: 0, missing: 0 },
  ]);
  expect(sent(cli)[2]).toMatchObject({ items: [{ custom_id: "cat" }] });
  expect((await cli.here(["retry", "--include-lost", "pets-images"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(3);
});

it("an image that was lost and made again counts once, so that a failed one is not hidden", async () => {
  const cli = await bench();
  expect((await cli.here(["retry", "pets-images"])).code).toBe(4);
  await cli.here(["delete", "pets-images", "--outputs"]);
  await rm(join(cli.cwd, "pets-images", "images", "cat.png"));
  const counts = { total: 3, success: 2, failed: 1 };
  const again = await cli.here(["retry", "--include-lost", "pets-images", "--json"]);
  expect([again.code, again.json().counts]).toEqual([4, { ...counts, unknown: 0, missing: 0 }]);
  for (const command of ["wait", "watch"]) {
    const { code, json } = await cli.here([command, "pets-images", "--json"]);
    expect([code, json().counts]).toEqual([4, counts]);
  }
});

it("an image that a service cannot send now blocks no retry, and is never paid for again", async () => {
  const cli = await petsCli({ failing: /dog/ });
  const busy = { status: 503, headers: { "retry-after": "0" } };
  cli.fake.always(/\/download/, { status: 404 });
  cli.fake.always(/\/cat\/content/, busy);
  const first = await cli.here(["submit", "pets.jsonl"]);
  expect(first.code).toBe(7);
  expect(first.stderr).toMatch(
    /to make the failed images: imgbatch retry pets-images .*\nrun the same command again, later: .*\nnext: imgbatch submit /,
  );
  expect(first.stderr).not.toContain("--include-lost");
  cli.fake.options.failing = /none/;
  for (const flags of [[], ["--include-lost"]]) {
    const { code, json } = await cli.here(["retry", "pets-images", "--json", ...flags]);
    expect([code, json().counts]).toEqual([7, { total: 3, success: 2, failed: 0, unknown: 0, missing: 1 }]);
    expect(cli.fake.batches).toHaveLength(2);
  }
});

it("[CLI-10] while only a retry runs, an image counts once, and no ended batch is said to go on", async () => {
  const cli = await bench();
  cli.fake.options.statuses = ["running"];
  const [made] = cli.fake.batches;
  const looks = () => cli.fake.count(new RegExp(`^GET .*${cli.fake.batches[1]?.id}$`));
  let before = 0;
  // Then the answer to a look has been told, also when the last look of the command before comes late.
  endLimitWhen(() => looks() > before + 3);
  for (const args of [
    ["retry", "pets-images"],
    ["submit", "pets.jsonl"],
    ["wait", "pets-images"],
  ]) {
    before = looks();
    const { code, stderr } = await cli.here([...args, "--timeout", LIMIT]);
    expect(code).toBe(124);
    expect(stderr).toContain(`Timed out after 1 s; ${cli.fake.batches[1]?.id} goes on.`);
    expect(stderr).not.toContain(`${made?.id} goes on`);
    expect(stderr).not.toMatch(/\d\/4 images/);
    if (args[0] !== "retry") expect(stderr).toContain("2/3 images, 0 failed, running");
  }
});
