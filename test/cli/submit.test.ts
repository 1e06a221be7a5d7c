import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { resultSchema } from "../../src/runs/directory/results.ts";
import { type Cli, createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { type FakeOptions, png } from "../support/fake-service.ts";
import { tempDir } from "../support/temp-dir.ts";

const PROMPTS = '{"custom_id":"cat","prompt":"a cat"}\n{"custom_id":"dog","prompt":"a dog"}\n';

async function bench(options: FakeOptions = {}, prompts = PROMPTS): Promise<Cli> {
  const cli = await createCli(options);
  await writeFile(join(cli.cwd, "pets.jsonl"), prompts);
  return cli;
}

it("[CLI-1] submit prints the directory and nothing else on stdout; what to do next is the last line of stderr", async () => {
  const cli = await bench();
  const { code, stdout, stderr } = await cli.run(["submit", "pets.jsonl"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "pets-images\n" });
  expect(stderr).toContain("2 of 2 images on disk and verified, $0.07");
  expect(stderr.trim().split("\n").at(-1)).toBe("next: imgbatch open pets-images");
  expect((await readdir(join(cli.cwd, "pets-images", "images"))).sort()).toEqual(["cat.png", "dog.png"]);
});

it("[CLI-2] [RUN-2] the result of submit as JSON has the counts, the batches, the files and whether it was a replay", async () => {
  const cli = await bench();
  const first = (await cli.here(["submit", "pets.jsonl", "--json"])).json();
  expect(first).toMatchObject({
    ok: true,
    exit_code: 0,
    replayed: false,
    directory: "pets-images",
    fetched_count: 2,
  });
  expect(first.counts).toEqual({ total: 2, success: 2, failed: 0, unknown: 0, missing: 0 });
  const again = await cli.here(["--json", "submit", "pets.jsonl"]);
  expect(again.json()).toMatchObject({ ok: true, replayed: true, fetched_count: 0 });
  expect(again.stderr).toMatch(/re-using imgbatch_\w+ submitted 2 h ago \(--new to generate again\)/);
  expect([cli.fake.count(/^POST/), cli.fake.count(/download/)]).toEqual([1, 1]);
});

it("bad lines are all reported, nothing is sent, and the exit code is 2", async () => {
  const cli = await bench({}, '{"prompt":"ok"}\n{"promt":"x"}\n{"prompt":1}\n');
  const { code, stdout, stderr } = await cli.here(["submit", "pets.jsonl"]);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/pets\.jsonl:2: promt: .*did you mean prompt/);
  expect(stderr).toMatch(/pets\.jsonl:3: prompt: must be a string/);
  expect(cli.fake.count(/^(?!GET)/)).toBe(0);
  const { error } = (await cli.here(["submit", "pets.jsonl", "--json"])).json();
  expect(error).toMatchObject({
    code: "INVALID_INPUT",
    details: [expect.any(String), expect.any(String), expect.any(String)],
  });
});

it("[FILE-2] what the model does not take is said together with what is wrong anyway", async () => {
  const crowded = { prompt: "x", reference_images: ["a.png", "a.png", "a.png", "a.png"] };
  const lines = [
    { prompt: "x", size: "3K", quality: "mega" },
    crowded,
    { prompt: "x", model: "nope", seed: -2 },
    { promt: "x" },
  ];
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const cwd = await tempDir();
  await writeFile(join(cwd, "p.jsonl"), text);
  await writeFile(join(cwd, "a.png"), png("a"));
  const data = await tempDir();
  const told = async (args: string[]) =>
    (await runInProcess([...args, "--data", data, "--json"], { cwd })).json().error?.details?.join("\n");
  for (const args of [
    ["submit", "p.jsonl", "--model", "vendorx-3.1-flash-lite-image"],
    ["generate", "--file", "p.jsonl"],
  ]) {
    const problems = await told(args);
    expect(problems).toMatch(/^p\.jsonl:1: size: "3K": use 512, 1K/m);
    expect(problems).toMatch(/^p\.jsonl:1: quality: mega/m);
    expect(problems).toMatch(/^p\.jsonl:3: model: .*nope|^p\.jsonl:3: model: cannot be chosen/m);
    expect(problems).toMatch(/^p\.jsonl:3: seed: /m);
    expect(problems).toMatch(/^p\.jsonl:4: promt: /m);
    expect(problems).not.toMatch(/^p\.jsonl:1: size: .*makes/m);
  }
  const few = await told(["submit", "p.jsonl", "--model", "vendorx-3.1-flash-lite-image"]);
  expect(few).toMatch(
    /^p\.jsonl:2: reference_images: .* takes at most 3 reference images; this prompt has 4/m,
  );
});

it("how many reference images a model takes is for its service to say, where neither its list nor its name does", async () => {
  const cli = await bench({}, '{"prompt":"a cat","reference_images":["a.png"]}\n');
  await writeFile(join(cli.cwd, "a.png"), png("a"));
  cli.fake.always(/^GET .*\/models/, { status: 200, body: { data: [{ id: "own-model" }] } });
  expect(await cli.here(["submit", "pets.jsonl", "--model", "own-model"])).toMatchObject({ code: 0 });
  const body = cli.fake.requests.find(({ method }) => method === "POST")?.body ?? "";
  expect(JSON.parse(body).items[0].reference_images).toHaveLength(1);
});

it("a service that cannot be asked hides no problem of a file", async () => {
  const cli = await bench({}, '{"promt":"x"}\n');
  await cli.fake.close();
  const { code, stderr } = await cli.here(["submit", "pets.jsonl"]);
  expect(code).toBe(2);
  expect(stderr).toMatch(/^error: 2 problems in the input; nothing was sent\.\n {2}pets\.jsonl:1: promt:/);
});

it("what the service reports of each image stands in the results, in items, and in the summary when it may be paid twice", async () => {
  const cli = await bench();
  const facts = { provider: "google", model_version: "image-002", seed: 7, upstream_cost: 0.039 };
  const notes = ["may be paid twice: the outcome of a request is unknown", 5];
  cli.fake.always(/items\?/, {
    lie: (answer) => {
      const list = JSON.parse(answer.body.toString());
      Object.assign(list.data[0], facts, { notes });
      Object.assign(list.data[1], {
        provider: 1,
        model_version: null,
        seed: "x",
        upstream_cost: {},
        notes: "x",
      });
      return { ...answer, body: Buffer.from(JSON.stringify(list)) };
    },
  });
  const { code, stderr } = await cli.here(["submit", "pets.jsonl"]);
  expect(code).toBe(0);
  expect(stderr).toContain("1 image may be paid twice, see pets-images/results.jsonl\n");
  const text = await readFile(join(cli.cwd, "pets-images", "results.jsonl"), "utf8");
  const [cat, dog] = text
    .trim()
    .split("\n")
    .map((line) => resultSchema.parse(JSON.parse(line)));
  expect(cat).toMatchObject({ ...facts, notes: notes.slice(0, 1) });
  const asked = { prompt: "a dog", source_id: "dog", file: "pets.jsonl", line: 2 };
  expect(dog).toMatchObject(asked);
  const known = ["batch_id", "custom_id", "files", "status", "verified", ...Object.keys(asked)];
  expect(Object.keys(dog ?? {}).sort()).toEqual(known.sort());
  const { stdout } = await cli.here(["items", "pets-images"]);
  const rows = stdout.split("\n", 2).map((line) => line.split("\t").slice(7));
  expect(rows).toEqual([
    ["google", "image-002", "7", "0.039", notes[0]],
    ["", "", "", "", ""],
  ]);
  const page = await readFile(join(cli.cwd, "pets-images", "index.html"), "utf8");
  for (const fact of ["<code>google</code>", "<code>image-002</code>", ">seed 7</p>"])
    expect(page).toContain(fact);
});

it("some failed images are exit 4, with the command that retries them; allowed ones are exit 0", async () => {
  const cli = await bench({ failing: /dog/ });
  const { code, stderr, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect(code).toBe(4);
  expect(stderr).toContain("dog: PROVIDER_ITEM_FAILED: It did not work.");
  expect(stderr).toMatch(/\nnext: imgbatch retry pets-images --base-url [^\n]*\n$/);
  expect(json()).toMatchObject({
    ok: false,
    exit_code: 4,
    error: { code: "ITEMS_FAILED" },
    retry: "pets-images/retry.jsonl",
  });
  expect((await cli.here(["submit", "pets.jsonl", "--allow-failures", "50%"])).code).toBe(0);
  expect((await cli.here(["submit", "pets.jsonl", "--allow-failures", "1"])).code).toBe(0);
});

it("no image at all is exit 5, also when it would be allowed", async () => {
  const cli = await bench({ failing: /./ });
  expect((await cli.here(["submit", "pets.jsonl", "--allow-failures", "100%"])).code).toBe(5);
});

it("a batch that was cancelled or failed is exit 4 or 5, and that is said", async () => {
  const cli = await bench({ statuses: ["cancelled"] });
  const some = await cli.here(["submit", "pets.jsonl"]);
  expect(some.code).toBe(4);
  expect(some.stderr).toMatch(/imgbatch_\w+ was cancelled\n/);
  const none = await bench({ statuses: ["failed"], failing: /./ });
  expect((await none.here(["submit", "pets.jsonl"])).code).toBe(5);
});

it("--detach prints the ids and leaves the rest to wait and download", async () => {
  const cli = await bench({ statuses: ["running", "completed"] });
  const { code, stdout, stderr } = await cli.here(["submit", "pets.jsonl", "-d"]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^imgbatch_\w+\n$/);
  expect(stderr).toMatch(/\nnext: imgbatch wait pets-images --base-url [^\n]*\n$/);
  const early = await cli.here(["download", "pets-images"]);
  expect(early.code).toBe(7);
  const waited = await cli.here(["wait", "pets-images", "--interval", "20ms"]);
  expect(waited.code).toBe(0);
  expect(waited.stdout).toMatch(/^imgbatch_\w+ {2}completed {2}2\/2 images/);
  const fetched = await cli.here(["download", "pets-images"]);
  expect({ code: fetched.code, stdout: fetched.stdout }).toEqual({ code: 0, stdout: "pets-images\n" });
  expect(await readdir(join(cli.cwd, "pets-images", "images"))).toHaveLength(2);
});

it("--dry-run says count, price of an image, sum and the next step, keys only with -v, and submits nothing", async () => {
  const cli = await bench();
  const typed = ["submit", "pets.jsonl", "--dry-run", "--count", "2"];
  const { code, stdout, stderr } = await cli.here(typed);
  expect(code).toBe(0);
  const facts =
    "2 prompts, 4 images, 1 batch with vendorx-3.1-flash-image\n  4 images, vendorx-3.1-flash-image, 1K: $0.0335 each\nestimated cost $0.14\n";
  expect(stdout).toBe(facts);
  expect(stderr).toMatch(/next: imgbatch submit pets\.jsonl --count 2 (?!.*--dry-run)/);
  const verbose = await cli.here([...typed, "-v"]);
  expect(verbose.stdout.slice(0, facts.length)).toBe(facts);
  expect(verbose.stdout.slice(facts.length)).toMatch(/^ib1-[0-9a-f]{64}\n$/);
  expect(cli.fake.count(/^POST/)).toBe(0);
  expect(await readdir(cli.cwd)).toEqual(["pets.jsonl"]);
});

it("--dry-run of a run that was submitted before costs nothing, unless it is made anew", async () => {
  const cli = await bench();
  expect((await cli.here(["submit", "pets.jsonl", "--max-batch", "1", "--detach"])).code).toBe(0);
  const dry = ["submit", "pets.jsonl", "--max-batch", "1", "--dry-run", "--max-cost", "0"];
  const { code, stdout } = await cli.here(dry);
  expect(code).toBe(0);
  expect(stdout).toContain(
    "2 batches submitted before: re-used, nothing is paid again\nestimated cost $0.00\n",
  );
  const { batches, estimated_cost } = (await cli.here([...dry, "--json"])).json();
  expect({ batches, estimated_cost }).toMatchObject({
    estimated_cost: 0,
    batches: [{ replayed: true }, { replayed: true }],
  });
  expect((await cli.here([...dry, "--new"])).code).toBe(8);
});

it("--max-cost refuses a dearer run before anything is sent or left, and needs a price", async () => {
  const cli = await bench();
  const refused = await cli.here(["submit", "pets.jsonl", "--max-cost", "0.05"]);
  expect(refused.code).toBe(8);
  expect(await readdir(cli.cwd)).toEqual(["pets.jsonl"]);
  expect(refused.stderr).toContain("2 images would cost $0.07, more than --max-cost $0.05");
  expect((await cli.here(["submit", "pets.jsonl", "--max-cost", "0.07"])).code).toBe(0);
  expect((await cli.here(["submit", "pets.jsonl", "--max-cost", "0"])).code).toBe(0);
  const foreign = await bench({ foreign: true });
  expect((await foreign.here(["submit", "pets.jsonl", "--max-cost", "1"])).code).toBe(2);
  expect((await foreign.here(["submit", "pets.jsonl", "--max-cost", "1", "--unit-cost", "2"])).code).toBe(8);
  expect(foreign.fake.count(/^POST/)).toBe(0);
});

it("the options of submit reach the request", async () => {
  const cli = await bench();
  const options = [
    "-m",
    "vendorx-3-pro-image",
    "-n",
    "spring",
    "--parent",
    "imgbatch_x",
    "--mime-type",
    "image/webp",
  ];
  await cli.here([
    "submit",
    ...options,
    "--metadata",
    "a=1",
    "--metadata",
    "b=2=3",
    "pets.jsonl",
    "--idempotency-key",
    "k7",
  ]);
  const sent = cli.fake.requests.find(({ method }) => method === "POST");
  expect(sent?.headers["idempotency-key"]).toBe("k7");
  expect(JSON.parse(sent?.body ?? "")).toMatchObject({
    model: "vendorx-3-pro-image",
    task_name: "spring",
    parent_batch_id: "imgbatch_x",
    response_mime_type: "image/webp",
    metadata: { a: "1", b: "2=3" },
  });
});

it("an option that is not right is exit 2 and says what would be", async () => {
  const cli = await bench();
  const wrong = [
    ["--count", "10001"],
    ["--mime-type", "image/gif"],
    ["--metadata", "novalue"],
    ["--timeout", "soon"],
    ["--max-cost", "cheap"],
    ["--allow-failures", "101%"],
    ["--progress", "dancing"],
    ["--new", "--idempotency-key", "x"],
    ["--model", "vendorx-9"],
  ];
  for (const options of wrong) {
    const { code, stdout } = await cli.here(["submit", "pets.jsonl", ...options]);
    expect({ options, code, stdout }).toEqual({ options, code: 2, stdout: "" });
  }
  expect(cli.fake.count(/^POST/)).toBe(0);
});

it("[CLI-11] the first signal ends with what to do next and 130 or 143, and the same command goes on", async () => {
  const cli = await bench({ statuses: ["running"] });
  for (const [signal, expected] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const) {
    const looks = cli.fake.count(/^GET .*imgbatch_\w+$/);
    const { child, ended } = cli.start(["submit", "pets.jsonl", "--json"]);
    await expect.poll(() => cli.fake.count(/^GET .*imgbatch_\w+$/)).toBeGreaterThan(looks + 1);
    child.kill(signal);
    const { code, stderr, json } = await ended;
    expect(code).toBe(expected);
    expect(json()).toMatchObject({ ok: false, exit_code: expected });
    expect(stderr).toMatch(/\nrun the same command again.*\nnext: imgbatch submit /);
  }
  for (const batch of cli.fake.batches) batch.statuses = ["completed"];
  expect((await cli.run(["submit", "pets.jsonl"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(1);
});

it("[CLI-13] nothing that others wrote moves the cursor or turns around what is shown, in lines or in JSON", async () => {
  const cli = await bench();
  const message = "\u001b[2J\u0007a\u009b2Jb\u007fc\u202ed\u2066e\u200ff\u061cg\u2028h";
  const unsafe = /[^\P{Cc}\n]|[\p{Bidi_Control}\u2028\u2029]/u;
  const refusal = { status: 400, body: { error: { code: "BATCH_IMAGE_INVALID_ITEMS", message } } };
  cli.fake.always(/^POST/, refusal);
  const lines = await cli.here(["submit", "pets.jsonl", "-v"]);
  expect(lines.stderr).toContain("\\x1b[2J\\x07a\\x9b2Jb\\x7fc\\u202ed\\u2066e\\u200ff\\u061cg\\u2028h");
  const asJson = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect(asJson.json().error?.message).toBe(message);
  const events = await cli.here(["submit", "pets.jsonl", "--events", "-"]);
  expect(JSON.parse(events.stdout.trim().split("\n").at(-1) ?? "")).toMatchObject({ error: { message } });
  cli.fake.always(/models/, { status: 200, body: { data: [{ id: message }] } });
  const models = await cli.here(["models"]);
  expect(models.stdout).toContain("a\\x9b2Jb");
  for (const { stdout, stderr } of [lines, asJson, events, models])
    expect(stdout + stderr).not.toMatch(unsafe);
});

it("-q says nothing when all is well, and --progress none only what stays", async () => {
  const cli = await bench();
  expect((await cli.here(["submit", "pets.jsonl", "-q"])).stderr).toBe("");
  await rm(join(cli.cwd, "pets-images"), { recursive: true });
  const { stderr } = await cli.here(["submit", "pets.jsonl", "--progress", "none"]);
  expect(stderr).not.toContain("submitting");
  expect(stderr).toContain("on disk and verified");
});
