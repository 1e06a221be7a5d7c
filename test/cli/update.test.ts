import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { type Cli, createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { tempDir } from "../support/temp-dir.ts";

const line = (custom_id: string, prompt = `a ${custom_id}`) => ({ custom_id, prompt });
const PETS = [line("cat"), line("dog"), line("cow")];
const EDITED = [line("cat"), line("dog", "a big d0g"), line("hen")];

const write = (cli: Cli, lines: readonly object[]) =>
  writeFile(join(cli.cwd, "pets.jsonl"), lines.map((each) => JSON.stringify(each)).join("\n"));

/** A run whose dog has failed, and then its prompts edited. */
async function edited(): Promise<Cli> {
  const cli = await createCli({ failing: /dog/ });
  await write(cli, PETS);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(4);
  await write(cli, EDITED);
  return cli;
}

it("submit of edited prompts is exit 6, says what differs, and prints the command that updates the run", async () => {
  const cli = await edited();
  const { code, stderr, json } = await cli.here(["submit", "pets.jsonl", "--json"]);
  expect([code, json().error?.details]).toEqual([
    6,
    ["pets.jsonl:2: dog: changed", "pets.jsonl:3: hen: added", "cow: removed"],
  ]);
  expect(stderr).toContain("1 prompt changed, 1 added, 1 removed; the model is the same.");
  expect(stderr).toMatch(
    /to make only 2 images \(about \$0\.07\) and keep the others:\nnext: imgbatch submit pets\.jsonl .*--update\n$/,
  );
  expect(cli.fake.batches).toHaveLength(1);
});

it("submit with other flags than before says which, and prints the command with them", async () => {
  const cli = await createCli({});
  await write(cli, PETS);
  const submit = ["submit", "pets.jsonl", "--data", "d"];
  expect((await cli.here([...submit, "--mime-type", "image/webp", "--count", "1"])).code).toBe(0);
  const { code, stderr } = await cli.here([...submit, "--mime-type", "image/jpeg"]);
  expect(code).toBe(6);
  expect(stderr).toContain("This run was made with --mime-type image/webp --count 1.");
  expect(stderr).toMatch(
    /with the flags of before:\nnext: imgbatch submit pets\.jsonl .* --mime-type image\/webp --count 1\n$/,
  );
  expect((await cli.here([...submit, "--mime-type", "image/webp"])).code).toBe(0);
  expect(cli.fake.batches).toHaveLength(1);
});

it("--dry-run --update counts the changes and the price, and changes nothing", async () => {
  const cli = await edited();
  const before = await readdir(join(cli.cwd, "pets-images"));
  const { code, stdout } = await cli.here(["submit", "pets.jsonl", "--update", "--dry-run"]);
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout:
      "1 prompt changed, 1 added, 1 removed; the model is the same\n2 images to make with vendorx-3.1-flash-image\n  2 images, vendorx-3.1-flash-image, 1K: $0.0335 each\nestimated cost $0.07\n",
  });
  const { json } = await cli.here(["submit", "pets.jsonl", "--update", "--dry-run", "--json"]);
  expect(json()).toMatchObject({
    image_count: 2,
    changes: { kept: 1, changed: ["dog"], added: ["hen"], removed: ["cow"] },
  });
  expect(await readdir(join(cli.cwd, "pets-images"))).toEqual(before);
  expect((await cli.here(["submit", "pets.jsonl", "--update", "--max-cost", "0.05"])).code).toBe(8);
  expect(cli.fake.batches).toHaveLength(1);
});

it("--update excludes --new and --idempotency-key, and is the usual submit in a new directory", async () => {
  const cli = await edited();
  for (const flags of [["--new"], ["--idempotency-key", "k"]])
    expect((await cli.here(["submit", "pets.jsonl", "--update", ...flags])).code).toBe(2);
  expect((await cli.here(["submit", "pets.jsonl", "--update", "-o", "other"])).code).toBe(0);
  expect(cli.fake.batches.at(-1)?.items).toHaveLength(3);
});

it("after an update every command takes the run as its prompts are now", async () => {
  const cli = await edited();
  const first = await cli.here(["submit", "pets.jsonl", "--update"]);
  expect(first.code).toBe(0);
  expect(first.stderr).toContain("3 of 3 images on disk and verified; $0.07 now ($0.07 paid earlier)");
  // The cow. The dog had failed.
  expect(await readFile(join(cli.cwd, "pets-images", "index.html"), "utf8")).toContain("1 earlier, in");
  const again = await cli.here(["submit", "pets.jsonl"]);
  expect(again.stderr).toContain("nothing to fetch; $0.00 now ($0.13 paid earlier)");
  const waited = await cli.here(["wait", "pets-images", "--json"]);
  expect([waited.code, waited.json().counts]).toEqual([0, { total: 3, success: 3, failed: 0 }]);
  const watched = await cli.here(["watch", "pets-images", "--json"]);
  expect([watched.code, watched.json().counts]).toEqual([0, { total: 3, success: 3, failed: 0 }]);
  expect((await cli.here(["status", "pets-images"])).stdout).toMatch(
    /1\/1 images {2}0 failed .*\n.*2\/2 images/,
  );
  const [first_, second] = cli.fake.batches.map(({ id }) => id);
  const items = (await cli.here(["items", "pets-images"])).stdout.trim().split("\n");
  expect(items.map((each) => [each.split("\t")[0], each.split("\t")[6]])).toEqual([
    ["cat", first_],
    ["dog", second],
    ["hen", second],
  ]);
  expect((await cli.here(["download", "pets-images", "--item", "dog", "-o", "dog.png"])).code).toBe(0);
  expect((await cli.here(["download", "pets-images", "-o", "copy", "--json"])).json()).toMatchObject({
    counts: { total: 3, success: 3, failed: 0, unknown: 0, missing: 0 },
  });
  expect((await readdir(join(cli.cwd, "copy", "images"))).sort()).toEqual(["cat.png", "dog.png", "hen.png"]);
  expect((await cli.here(["retry", "pets-images"])).stderr).toContain("nothing to retry");
  const page = await readFile(join(cli.cwd, "pets-images", "index.html"), "utf8");
  expect(page).toContain("a big d0g");
  expect(page).not.toContain("a cow");
  expect(cli.fake.batches).toHaveLength(2);
});

it("[RUN-26] submit and --update make images again that had failed, in the same directory, and --no-retry leaves them", async () => {
  const cli = await createCli({ failing: /dog/ });
  await write(cli, PETS);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(4);
  expect((await cli.here(["submit", "pets.jsonl", "--no-retry"])).code).toBe(4);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(4);
  cli.fake.options.failing = /none/;
  await write(cli, [...PETS, line("yak")]);
  const dry = await cli.here(["submit", "pets.jsonl", "--update", "--dry-run"]);
  expect(dry.stdout).toContain("2 images to make with");
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(0);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  const sent = cli.fake.batches.map(({ items }) => items.map((item) => item.custom_id));
  expect(sent).toEqual([["cat", "dog", "cow"], ["dog"], ["dog", "yak"]]);
});

it("images of an update that fail are retried alone, and an open update is finished by retry too", async () => {
  const cli = await edited();
  cli.fake.options.failing = /hen/;
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(4);
  cli.fake.options.failing = /none/;
  for (let i = 0; i < 4; i++) cli.fake.fault(/^POST/, { reset: "after" });
  expect((await cli.here(["retry", "pets-images"])).code).toBe(7);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(0);
  await write(cli, [...EDITED, line("yak")]);
  for (let i = 0; i < 4; i++) cli.fake.fault(/^POST/, { reset: "after" });
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(7);
  expect((await cli.here(["retry", "pets-images"])).code).toBe(0);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  const sent = cli.fake.batches.map(({ items }) => items.map((item) => item.custom_id));
  expect(sent).toEqual([["cat", "dog", "cow"], ["dog", "hen"], ["hen"], ["yak"]]);
});

it.each([
  [401, "INVALID_API_KEY", /give a key in IMGBATCH_API_KEY/],
  [403, "BATCH_IMAGE_DISABLED", /ask the operator/],
])(
  "[RUN-8] an open batch that a %i refuses stays open, and the next command finds it",
  async (status, code, what) => {
    const cli = await edited();
    cli.fake.options.failing = /none/;
    await write(cli, PETS);
    const cutOff = async (...command: string[]) => {
      const refused = { status, body: { error: { code, message: "No." } } };
      cli.fake.fault(/^POST/, ...Array(4).fill({ reset: "after" }), refused);
      expect((await cli.here(command)).code).toBe(7);
      const { code: exit, stderr } = await cli.here(command);
      expect([exit, stderr]).toEqual([3, expect.stringMatching(what)]);
      expect(stderr).toContain("then run the same command again: it continues where it stopped");
      const { batches } = JSON.parse(await readFile(join(cli.cwd, "pets-images", "imgbatch.json"), "utf8"));
      expect(batches.at(-1)).toMatchObject({ state: "unknown", id: null });
      expect(
        (await cli.here([...command, ...(command[0] === "retry" ? ["--include-refused"] : [])])).code,
      ).toBe(0);
    };
    await cutOff("retry", "pets-images");
    await write(cli, EDITED);
    await cutOff("submit", "pets.jsonl", "--update");
    const sent = cli.fake.batches.map(({ items }) => items.map((item) => item.custom_id));
    expect(sent).toEqual([["cat", "dog", "cow"], ["dog"], ["dog", "hen"]]);
  },
);

it("--dry-run ends as the submission itself would, and counts what it would send", async () => {
  const cli = await edited();
  const really = await cli.here(["submit", "pets.jsonl", "--json"]);
  const dry = await cli.here(["submit", "pets.jsonl", "--dry-run", "--json"]);
  expect([dry.code, dry.json().error]).toEqual([6, really.json().error]);
  expect((await cli.here(["submit", "pets.jsonl", "--update", "--max-batch", "1"])).code).toBe(0);
  const posts = cli.fake.count(/^POST/);
  const after = (await cli.here(["submit", "pets.jsonl", "--dry-run", "--json"])).json();
  expect(after).toMatchObject({ image_count: 0, estimated_cost: 0 });
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  expect(cli.fake.count(/^POST/)).toBe(posts);
  const split = ["submit", "pets.jsonl", "-o", "split"];
  expect((await cli.here([...split, "--max-batch", "1"])).code).toBe(0);
  expect((await cli.here([...split, "--dry-run"])).code).toBe(6);
  expect((await cli.here(["submit", "pets.jsonl", "-o", "new", "--dry-run"])).code).toBe(0);
  expect(await readdir(cli.cwd)).not.toContain("new");
});

it("the input of a run can be submitted as a prompt file, and stays what it is", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "pets.jsonl"), '{"prompt": "a cat"}\n');
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  const read = () => readFile(join(cli.cwd, "pets-images", "input.jsonl"), "utf8");
  const before = await read();
  const again = await cli.here(["submit", "pets-images/input.jsonl", "--strict", "-o", "pets-images"]);
  expect([again.code, await read()]).toEqual([0, before]);
  expect(again.stderr).not.toContain("metadata");
  expect(cli.fake.batches).toHaveLength(1);
});

it("items of an updated run come in the order of its prompts, and other options change no image", async () => {
  const cli = await createCli();
  await write(cli, PETS);
  expect((await cli.here(["submit", "pets.jsonl"])).code).toBe(0);
  const named = await cli.here(["submit", "pets.jsonl", "--name", "other"]);
  expect([named.code, named.stderr]).toEqual([
    6,
    expect.stringContaining("which makes no image:\nnext: imgbatch submit pets.jsonl"),
  ]);
  await write(cli, [line("hen"), ...PETS]);
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(0);
  const { stdout } = await cli.here(["items", "pets-images"]);
  expect(stdout.split("\n").map((each) => each.split("\t")[0])).toEqual(["hen", "cat", "dog", "cow", ""]);
});

it("after refused prompts, submit and retry say where they stand and how to make them", async () => {
  const cli = await createCli({ failing: /dog/ });
  cli.fake.always(/^GET .*\/items\?/, {
    lie: (answer) => ({
      ...answer,
      body: Buffer.from(answer.body.toString().replaceAll("PROVIDER_ITEM_FAILED", "SAFETY_BLOCKED")),
    }),
  });
  await write(cli, PETS);
  const { code, stderr } = await cli.here(["submit", "pets.jsonl"]);
  expect(code).toBe(4);
  expect(stderr).toMatch(
    /\nchange what was refused in pets\.jsonl \(line 2\), then:\nnext: imgbatch submit .*--update/,
  );
  for (const flags of [[], ["--include-refused"]]) {
    const retried = await cli.here(["retry", "pets-images", ...flags]);
    expect(retried.stderr).toContain(
      "next: change what was refused in pets.jsonl (line 2), then run the submit command of pets-images again with --update",
    );
  }
  await write(cli, PETS.with(1, line("dog", "a puppy")));
  expect((await cli.here(["submit", "pets.jsonl", "--update"])).code).toBe(0);
  expect(cli.fake.batches.at(-1)?.items).toHaveLength(1);
  const elsewhere = await cli.here(["submit", "-", "-o", "piped"], { stdin: '{"prompt": "a dog"}' });
  const step = /change the prompts .* in piped\/retry\.jsonl, then:\nnext: imgbatch (submit .*)/;
  const words = step.exec(elsewhere.stderr)?.[1]?.split(" ") ?? [];
  const { request } = JSON.parse(await readFile(join(cli.cwd, "piped", "imgbatch.json"), "utf8"));
  expect(words.slice(0, 6)).toEqual([
    "submit",
    "piped/retry.jsonl",
    "--output",
    "piped-retry",
    "--model",
    request.model,
  ]);
  await writeFile(join(cli.cwd, "piped", "retry.jsonl"), '{"prompt": "a puppy"}');
  expect((await cli.here(words.slice(0, 6))).code).toBe(0);
});

it("[REPLAY-4] the next step after missing recordings is to record them, whatever command asked for them", async () => {
  const cwd = await tempDir();
  await mkdir(join(cwd, "pics"));
  await writeFile(join(cwd, "imgbatch.config.json"), '{"replay": "pics"}');
  await writeFile(join(cwd, "p.txt"), "a fox\nan owl\n");
  vi.stubEnv("XDG_CONFIG_HOME", join(cwd, "home"));
  expect((await runInProcess(["doctor", "--agree", "--data", join(cwd, "data")], { cwd })).code).toBe(0);
  const step = "to record what the upstream makes of them:\nnext: imgbatch exec --replay DIR --record";
  for (const [command, last] of [
    [["submit", "p.txt"], "imgbatch retry --include-refused p-images"],
    [["generate", "--file", "p.txt", "-o", "out"], "and the same command"],
  ] as const) {
    const { code, stderr } = await runInProcess([...command, "--data", join(cwd, "data")], { cwd });
    expect([code, stderr]).toEqual([5, expect.stringContaining(step)]);
    expect(stderr).toContain(` -- ${last}\n`);
  }
});

/** A directory whose drawings are of a model with these facts. */
async function withModel() {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  const cwd = await tempDir();
  const facts = { sizes: ["512", "1K"], prices: { "512": 0.01, "1K": 0.02 }, qualities: ["low", "high"] };
  const qualityPrices = { low: { "512": 0.01, "1K": 0.02 }, high: { "512": 0.1, "1K": 0.2 } };
  const model = (more: object) =>
    writeFile(
      join(cwd, "c.json"),
      JSON.stringify({ models: [{ id: "m", ...facts, defaultQuality: "low", qualityPrices, ...more }] }),
    );
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const prompts = (...lines: object[]) =>
    writeFile(join(cwd, "p.jsonl"), lines.map((each) => JSON.stringify(each)).join("\n"));
  return { cwd, model, run, prompts };
}

it("[RUN-27] another default quality of the model changes no prompt of a run: nothing is made and paid again", async () => {
  const { model, run, prompts } = await withModel();
  const [named, plain] = [{ custom_id: "a", prompt: "a fox", quality: "low" }, line("b")];
  await model({});
  await prompts(named, plain);
  expect((await run("submit", "p.jsonl", "-o", "out")).code).toBe(0);
  await model({ defaultQuality: "high" });
  const again = await run("submit", "p.jsonl", "-o", "out");
  expect([again.code, again.stderr]).toEqual([0, expect.stringContaining("nothing to fetch")]);
  await prompts(named, plain, line("c"), { ...line("d"), quality: "high" });
  const dry = await run("submit", "p.jsonl", "-o", "out", "--update", "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ image_count: 2, changes: { changed: [], added: ["c", "d"] } });
  expect((await run("submit", "p.jsonl", "-o", "out", "--update")).code).toBe(0);
  const { items } = (await run("items", "out", "--json")).json() as { items: Record<string, unknown>[] };
  const asked = items.map(({ custom_id, options }) => [custom_id, options]);
  // A new prompt of the run asks for what the others have got.
  expect(asked).toEqual([
    ["a", null],
    ["b", null],
    ["c", { quality: "low" }],
    ["d", null],
  ]);
});

it("[RUN-8] a batch whose answer was lost is found by its key, also when its model does not take the prompts any more", async () => {
  const { cwd, model, run, prompts } = await withModel();
  await model({});
  await prompts({ ...line("a"), size: "512" });
  const submit = ["submit", "p.jsonl", "-o", "out"];
  expect((await run(...submit)).code).toBe(0);
  const path = join(cwd, "out/imgbatch.json");
  const state = JSON.parse(await readFile(path, "utf8"));
  const [{ id }] = state.batches;
  Object.assign(state.batches[0], { id: null, state: "unknown", status: null });
  await writeFile(path, JSON.stringify({ ...state, finished_at: null }));
  expect((await run(...submit, "--dry-run")).stdout).toContain("1 image may be made and paid already");
  await model({ sizes: ["1K"] });
  const found = await run(...submit);
  expect([found.code, found.stderr]).toEqual([0, expect.stringContaining(`re-using ${id}`)]);
  expect((await run("list")).stdout.trim().split("\n")).toHaveLength(1);
  // Without such a batch the prompts are to be fixed.
  expect((await run("submit", "p.jsonl", "-o", "other")).code).toBe(2);
});
