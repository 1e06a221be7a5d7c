import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { noRun } from "../../src/cli/targets.ts";
import { type Cli, createCli } from "../support/cli.ts";
import { type Answer, png } from "../support/fake-service.ts";
import { petsCli } from "./pets.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

const LOST = {
  status: 500,
  body: { error: { code: "BATCH_IMAGE_RESULT_MISSING", message: "It is gone." } },
};

const resultsOf = async (cli: Cli) =>
  (await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8"))
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

it("[SAVE-1] a lost image is exit 7 with everything else here, in the results and in the reports", async () => {
  const cli = await petsCli();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  const { code, json, stderr } = await cli.run(["submit", "pets.jsonl", "--json", "--junit", "junit.xml"]);
  expect(code).toBe(7);
  expect(json()).toMatchObject({
    ok: false,
    exit_code: 7,
    error: { code: "BATCH_IMAGE_RESULT_MISSING" },
    counts: { total: 3, success: 2, failed: 0, unknown: 0, missing: 1 },
    fetched_count: 2,
    retry: null,
  });
  expect(stderr).toContain("cat: BATCH_IMAGE_RESULT_MISSING: It is gone.");
  expect(stderr).toMatch(/\nrun the same command again: it fetches what is missing\nnext: imgbatch submit /);
  expect(await readFile(join(cli.cwd, "junit.xml"), "utf8")).toContain('failures="1"');
  expect((await readdir(join(cli.cwd, "pets-images"))).sort()).toEqual([
    "checks.jsonl",
    "images",
    "imgbatch.json",
    "index.html",
    "input.jsonl",
    "results.jsonl",
  ]);
  const again = await cli.here(["download", "pets-images", "--json"]);
  expect([again.code, again.json().fetched_count]).toEqual([7, 0]);
  expect(cli.fake.count(/\/download/)).toBe(1);
});

it("[SAVE-1] wrong bytes are exit 9, also beside an image that is lost", async () => {
  const cli = await petsCli();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  cli.fake.always(/dog\/content/, { lie: (answer) => ({ ...answer, body: png("other") }) });
  const { code, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect([code, json().error?.code]).toEqual([9, "VERIFY_FAILED"]);
  expect((await resultsOf(cli)).map((line) => line.error?.code)).toEqual([
    "BATCH_IMAGE_RESULT_MISSING",
    "VERIFY_FAILED",
    undefined,
  ]);
});

it("retry pays for what has failed, and never for what has no outcome in a completed batch", async () => {
  const cli = await petsCli({ failing: /cow/ });
  let isLate = true;
  cli.fake.always(/\/items\?/, {
    lie: (answer) => {
      const page = JSON.parse(answer.body.toString());
      for (const item of page.data)
        if (isLate && item.custom_id === "cat")
          Object.assign(item, { status: "pending", image_count: 0, error: null });
      return { ...answer, body: Buffer.from(JSON.stringify(page)) };
    },
  });
  const first = await cli.here(["submit", "pets.jsonl", "--allow-failures", "3", "--json"]);
  expect([first.code, first.json().error?.code]).toEqual([7, "BATCH_IMAGE_NOT_READY"]);
  expect(await readFile(join(cli.cwd, "pets-images", "retry.jsonl"), "utf8")).toBe(
    '{"custom_id":"cow","prompt":"a cow"}\n',
  );
  cli.fake.options.failing = /none/;
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  const sent = cli.fake.requests
    .filter(({ method }) => method === "POST")
    .map(({ body }) => JSON.parse(body));
  expect(sent[1].items).toEqual([{ custom_id: "cow", prompt: "a cow" }]);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  expect((await cli.here(["retry", "pets-images", "--include-lost"])).code).toBe(7);
  expect(cli.fake.batches).toHaveLength(2);
  isLate = false;
  expect((await cli.here(["retry", "pets-images"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(2);
});

it("in a directory of `download` the advice for a lost image is not a command that cannot work there", async () => {
  const cli = await petsCli();
  cli.fake.always(/\/download/, LOST);
  cli.fake.always(/cat\/content/, LOST);
  await cli.here(["submit", "pets.jsonl"]);
  const id = cli.fake.batches[0]?.id ?? "";
  const { code, stderr } = await cli.here(["download", id]);
  expect(code).toBe(7);
  expect(stderr).toMatch(/with the directory that submitted them, or submit their prompts again\n/);
  expect(stderr).not.toContain(`--include-lost ${id}`);
  expect((await cli.here(["download", id])).stderr).not.toContain("nothing was missing");
});

const LOOK = /^GET .*\/imgbatch_\w+$/;

/** Takes the counts out of an answer, or writes them as text. */
const telling =
  (fields: readonly string[], write: (value: unknown) => unknown) =>
  (answer: Answer): Answer => {
    const wire = JSON.parse(answer.body.toString());
    for (const name of fields) wire[name] = write(wire[name]);
    return { ...answer, body: Buffer.from(JSON.stringify(wire)) };
  };
const COUNTS = ["item_count", "success_count", "fail_count"];

async function detached(prompts: readonly string[], dir = "pets-images") {
  const cli = await createCli({ failing: /bad/ });
  await writeFile(
    join(cli.cwd, "pets.jsonl"),
    prompts.map((prompt) => JSON.stringify({ prompt })).join("\n"),
  );
  const submitted = await cli.here(["submit", "pets.jsonl", "--detach", "-o", dir]);
  expect(submitted.code).toBe(0);
  return { cli, id: submitted.stdout.trim() };
}

for (const [what, prompts, code] of [
  ["all made", ["a", "b"], 0],
  ["some failed", ["a", "bad"], 4],
  ["none made", ["bad"], 5],
] as const) {
  it(`${what}: wait and watch judge by the items where counts are missing, or written as text`, async () => {
    for (const write of [() => undefined, String]) {
      const { cli, id } = await detached(prompts);
      cli.fake.always(LOOK, { lie: telling(COUNTS, write) });
      for (const command of ["wait", "watch"]) {
        const { code: ended } = await cli.here([command, id, "--interval", "50ms"]);
        expect([command, ended]).toEqual([command, code]);
      }
      const status = await cli.here(["status", id]);
      const made = prompts.filter((prompt) => prompt !== "bad").length;
      expect(status.stdout).toContain(`${made}/${prompts.length} images`);
      expect((await cli.here(["wait", "pets-images", "--json"])).json()).toMatchObject({
        counts: { total: prompts.length, success: made },
      });
    }
  });
}

it("status tells what it knows when the items cannot be listed either", async () => {
  const { cli, id } = await detached(["a"]);
  cli.fake.always(LOOK, { lie: telling(COUNTS, () => undefined) });
  cli.fake.always(/items/, { status: 404, body: "" });
  const { code, stdout } = await cli.here(["status", id]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining("?/? images  ? failed") });
});

/** The last line of stderr without what says where the service is. */
const next = (stderr: string) =>
  stderr
    .trim()
    .split("\n")
    .at(-1)
    ?.replace(/ --(base-url|api-key-file|data) \S+/g, "");

it("[CLI-1] each outcome of a batch names the command that comes next, with what it is about", async () => {
  const dir = "my pets";
  const { cli, id } = await detached(["a", "bad"], dir);
  const after = async (...args: string[]) => next((await cli.here(args)).stderr);
  const { wire, statuses } = cli.fake.batches[0] ?? expect.fail();
  statuses.splice(0, statuses.length, "running");
  expect(await after("status", dir)).toBe("next: imgbatch wait 'my pets'");
  let before = cli.fake.count(LOOK);
  // Then the batch is known, also when the last look of the command before comes late.
  endLimitWhen(() => cli.fake.count(LOOK) > before + 2);
  expect(await after("wait", dir, "--timeout", LIMIT)).toBe("next: imgbatch wait 'my pets'");
  expect(await after("download", dir)).toBe("next: imgbatch wait 'my pets'");
  before = cli.fake.count(LOOK);
  expect(await after("submit", "pets.jsonl", "-o", dir, "--timeout", LIMIT)).toBe(
    "next: imgbatch wait 'my pets'",
  );
  statuses.splice(0, statuses.length, "completed");
  expect(await after("wait", dir)).toBe("next: imgbatch download 'my pets'");
  expect(await after("status", id)).toBe(`next: imgbatch download ${id}`);
  expect(await after("download", dir)).toBe("next: imgbatch retry 'my pets'");
  expect(await after("status", dir)).toBe("next: imgbatch open 'my pets'");
  expect(await after("download", dir, "--item", "none")).toMatch(/^next: imgbatch items 'my pets'/);
  expect(await after("submit", "pets.jsonl", "-o", dir, "--dry-run")).toBe(
    "next: imgbatch submit pets.jsonl -o 'my pets'",
  );
  expect(await after("status", "nodir")).toMatch(/^next: imgbatch list/);
  expect((await cli.here(["status", "nodir"])).stderr).toContain(
    "There is no run directory nodir, and no batch of that id.",
  );
  statuses.splice(0, statuses.length, "output_deleted");
  await rm(join(cli.cwd, dir, "images"), { recursive: true });
  expect(await after("wait", dir)).toMatch(/^next: imgbatch download 'my pets'/);
  expect(await after("download", dir)).toMatch(/^next: imgbatch retry 'my pets'/);
  expect(wire.id).toBe(id);
});

it("[CLI-1] a run that is whole is opened next, also where the ZIP was kept", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
  const folder = await cli.here(["submit", "p.jsonl", "-o", "my images"]);
  expect(next(folder.stderr)).toBe("next: imgbatch open 'my images'");
  const zip = await cli.here(["submit", "p.jsonl", "-o", "zipped", "--zip"]);
  expect(next(zip.stderr)).toBe("next: imgbatch open zipped");
});

it("[CLI-1] what is no output directory of a run gets the runs that are here, or the way to make one", async () => {
  const cli = await createCli();
  const said = async (...args: string[]) => {
    const { code, stderr } = await cli.here(args);
    return [code, stderr];
  };
  const commands = [["pack"], ["open"], ["retry"], ["finish", "--upstream", "google"]];
  for (const [name = "", ...flags] of commands) {
    const none =
      "There is no run directory nodir.\nnext: name the output directory of a run; imgbatch submit FILE makes one";
    expect(await said(name, "nodir", ...flags)).toEqual([2, expect.stringContaining(none)]);
  }
  // A directory that may not be listed has no runs to name.
  expect(noRun("nodir", join(cli.cwd, "unlisted"))).toMatchObject({
    code: "USAGE",
    advice: expect.stringContaining("imgbatch submit FILE"),
  });
  await writeFile(join(cli.cwd, "p.txt"), "a fox");
  expect((await cli.here(["submit", "p.txt"])).code).toBe(0);
  for (const [name = "", ...flags] of commands)
    expect(await said(name, "nodir", ...flags)).toEqual([2, expect.stringContaining("such as p-images\n")]);
  const ofBatch = /next: name .* such as p-images; imgbatch download imgbatch_a makes one of this batch\n/;
  expect(await said("pack", "imgbatch_a")).toEqual([2, expect.stringMatching(ofBatch)]);
});

it("[CLI-1] with -q nothing but the error is said", async () => {
  const cli = await createCli({ failing: /bad/ });
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}\n{"prompt":"bad"}');
  const some = await cli.here(["submit", "p.jsonl", "-q"]);
  expect([some.code, some.stderr]).toEqual([4, "error: 1 of 2 images failed\n"]);
  const gone = await cli.here(["status", "imgbatch_none", "-q"]);
  expect(gone.stderr).toBe(
    "error: There is no batch imgbatch_none for this key.\ncode: BATCH_IMAGE_NOT_FOUND, request id: req_fake\n",
  );
  const wrong = await cli.here(["status", "-q", "--nonsense"]);
  expect([wrong.code, wrong.stderr]).toEqual([2, "error: unknown option '--nonsense'\n"]);
});
