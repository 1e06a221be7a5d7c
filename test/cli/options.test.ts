import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { findPreset } from "../../src/providers/catalogue/catalogue.ts";
import { createCli } from "../support/cli.ts";
import { createInProcessCli, type InProcessCli, runInProcess } from "../support/cli-in-process.ts";
import { tinyPng } from "../support/fake-provider.ts";
import type { Answer } from "../support/fake-service.ts";
import { tempDir } from "../support/temp-dir.ts";

interface Line {
  custom_id: string;
  model?: string;
  options?: Record<string, unknown>;
  files: { width: number; height: number; sha256: string }[];
}

/** A directory with a prompt file, and the embedded service, which draws. */
async function workplace(lines: readonly object[]) {
  const cwd = await tempDir();
  const edit = (prompts: readonly object[]) =>
    writeFileSync(join(cwd, "p.jsonl"), prompts.map((line) => `${JSON.stringify(line)}\n`).join(""));
  edit(lines);
  const type = (...args: string[]) => runInProcess([...args, "--data", join(cwd, "data")], { cwd });
  const read = (name: string) => readFileSync(join(cwd, "p-images", name), "utf8");
  const rows = (name: string) =>
    read(name)
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  const results = (): Line[] => rows("results.jsonl");
  const planned = async (...args: string[]) =>
    (await type("submit", "p.jsonl", "--dry-run", "--json", ...args)).json();
  return { cwd, edit, type, read, rows, results, planned };
}

it("[LINE-1] every option of a line decides its picture, and an update makes only what asks for something else", async () => {
  const all = { aspect_ratio: "16:9", size: "2k", quality: "high", background: "transparent", seed: 7 };
  const fox = { custom_id: "fox", prompt: "a fox", ...all, negative_prompt: " snow ", output_count: 2 };
  const { edit, type, results, rows, read } = await workplace([fox, { prompt: "an owl" }]);
  expect((await type("submit", "p.jsonl", "--quality", "low")).code).toBe(0);
  const options = { ...all, size: "2K", negative_prompt: "snow" };
  expect(results().map((line) => [line.options, line.files[0]?.width, line.files[0]?.height])).toEqual([
    [options, 2752, 1536],
    [{ ...options, seed: 8 }, 2752, 1536],
    [{ quality: "low" }, 1024, 1024],
  ]);
  expect(rows("input.jsonl")[0]).toMatchObject({ custom_id: "fox", ...options });
  const [, , low] = results();

  edit([fox, { prompt: "an owl", quality: "high" }]);
  const dry = await type("submit", "p.jsonl", "--update", "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ image_count: 1, changes: { kept: 1, changed: ["item_000002"] } });
  const update = await type("submit", "p.jsonl", "--update");
  expect([update.code, update.stderr]).toEqual([0, expect.stringContaining("submitting 1 image")]);
  const [, , high] = results();
  expect([high?.options, high?.files[0]?.sha256 === low?.files[0]?.sha256]).toEqual([
    { quality: "high" },
    false,
  ]);
  expect(read("input.jsonl").trim().split("\n")).toHaveLength(2);
});

it("[LINE-1] what the model has anyway is the same as nothing, and the price is the sum of all images", async () => {
  const { edit, planned } = await workplace([{ prompt: "a" }, { prompt: "b" }]);
  const plain = await planned();
  edit([{ prompt: "a", size: "1K", quality: "medium", background: "auto", seed: null }, { prompt: "b" }]);
  expect(await planned()).toEqual(plain);
  expect(await planned("--size", "1k", "--model", "vendorx-3.1-flash-image")).toEqual(plain);
  edit([{ prompt: "a", size: "2K" }, { prompt: "b" }]);
  expect(plain.estimated_cost).toBe(0.067);
  expect((await planned()).estimated_cost).toBe(0.084);
  expect((await planned("--size", "2K")).estimated_cost).toBe(0.101);
});

it("[LINE-1] keys, hashes and input of lines without options are those of earlier versions, byte for byte", async () => {
  const { type, read } = await workplace([
    { custom_id: "cat", prompt: "a cat", output_count: 2, shop: 7 },
    { prompt: "an owl" },
  ]);
  expect((await type("submit", "p.jsonl")).code).toBe(0);
  expect(read("input.jsonl").replaceAll(/[0-9a-f]{16}/g, "…")).toBe(
    `{"custom_id":"cat","prompt":"a cat","output_count":2,"metadata":{"shop":7},"source":{"id":"cat","file":"p.jsonl","line":1},"digest":"…"}
{"custom_id":"item_000002","prompt":"an owl","source":{"file":"p.jsonl","line":2},"digest":"…"}
`,
  );
  expect(JSON.parse(read("imgbatch.json"))).toMatchObject({
    input_sha256: "b854c7ec52130120169c82575d74a8472b89e3be057b74bde7b731e8aa1c6f66",
    batches: [{ idempotency_key: "ib1-a2dac250319e3bd041c369c5c25cb6ccd1fb9fa976468127979341b22f5809e1" }],
  });
});

it("[LINE-2] an option that the model does not take is named with file, line and field, and nothing is sent", async () => {
  const { edit, type } = await workplace([
    { prompt: "a", quality: "ultra" },
    { prompt: "b", size: "4K", model: "vendorx-3.1-flash-lite-image" },
    { prompt: "c", background: "transparent" },
    { prompt: "d", model: "nobody" },
  ]);
  const { code, stderr } = await type("submit", "p.jsonl", "--mime-type", "image/jpeg");
  expect(code).toBe(2);
  for (const problem of [
    "p.jsonl:1: quality: ultra: vendorx-3.1-flash-image takes low, medium, high\n",
    "p.jsonl:2: size: 4K: vendorx-3.1-flash-lite-image takes 1K; vendorx-3.1-flash-image, ",
    "p.jsonl:3: background: transparent: a JPEG has no transparency",
    'p.jsonl:4: model: there is no batch model "nobody"; there is vendorx-3.1-flash-image, ',
  ])
    expect(stderr).toContain(problem);
  // A wrong flag is named once, however many lines it is for.
  edit([{ prompt: "a" }, { prompt: "b" }]);
  const flag = await type("submit", "p.jsonl", "--quality", "best");
  expect([flag.code, flag.stderr]).toEqual([2, expect.stringContaining("1 problem in the input")]);
  expect(flag.stderr).toContain("--quality: best: vendorx-3.1-flash-image takes low, medium, high\n");
  edit([{ prompt: "d", model: "nobody" }]);
  expect((await type("submit", "p.jsonl")).stderr).toContain("p.jsonl:1: model: there is no batch model");
  expect((await type("list", "--json")).json().batches).toEqual([]);
});

it("[LINE-2] misspelt options and wrong values are reported before any service is asked", async () => {
  const { type } = await workplace([
    { prompt: "a", seed: 1.5 },
    { prompt: "a", seed: 2 ** 32 },
    { prompt: "a", image_size: "2K" },
    { prompt: "a", qualty: "low" },
    { prompt: "a", background: "blue" },
    { prompt: "a", options: { image_size: "2K" } },
  ]);
  const { code, stderr } = await type("submit", "p.jsonl", "--base-url", "http://127.0.0.1:9");
  expect(code).toBe(2);
  for (const problem of [
    "p.jsonl:1: seed: 1.5: write a whole number from 0 to 4294967295",
    "p.jsonl:2: seed: 4294967296: write",
    "p.jsonl:3: image_size: is not a known field; did you mean size?",
    "p.jsonl:4: qualty: is not a known field; did you mean quality?",
    'p.jsonl:5: background: "blue": use transparent, opaque, auto',
    "p.jsonl:6: options: is of the API; write its fields in the line itself",
  ])
    expect(stderr).toContain(problem);
});

it("[LINE-2] a service that announces no options gets plain lines only, and the way out is named", async () => {
  const cli = await createCli();
  const lines = [{ prompt: "a", seed: 4 }, { prompt: "b" }, { prompt: "c", seed: 5 }];
  writeFileSync(join(cli.cwd, "my p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  const refused = await cli.here(["submit", "my p.jsonl"]);
  expect([refused.code, cli.fake.batches.length]).toEqual([2, 0]);
  expect(refused.stderr).toContain(
    "my p.jsonl:1: seed: this service makes batches without such options (also on 1 other line); `imgbatch generate --file 'my p.jsonl'`",
  );
  writeFileSync(join(cli.cwd, "plain.jsonl"), '{"prompt":"a","size":"1K","background":"auto"}');
  expect((await cli.here(["submit", "plain.jsonl"])).code).toBe(0);
  expect(JSON.parse(cli.fake.batches[0]?.request ?? "").items).toEqual([
    { custom_id: "item_000001", prompt: "a" },
  ]);
});

it("real time takes every option of a line and of the command line, at its price, also when it goes on", async () => {
  const look = { quality: "high", background: "transparent", negative_prompt: "snow" };
  const { cwd, edit, type, results, rows } = await workplace([
    { prompt: "a", ...look, seed: 7 },
    { prompt: "b" },
  ]);
  const models = [
    {
      ...{ id: "painter", prices: { "1K": 0.04 }, backgrounds: ["transparent", "opaque"] },
      ...{ qualities: ["low", "high"], defaultQuality: "low" },
      qualityPrices: { low: { "1K": 0.04 }, high: { "1K": 0.2 } },
    },
  ];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ models }));
  const run = (...args: string[]) => type("generate", ...args, "--config", join(cwd, "c.json"), "--json");
  const file = ["--file", "p.jsonl", "--negative-prompt", "rain"];
  const first = await run(...file);
  expect([first.code, first.stderr]).toEqual([0, expect.any(String)]);
  expect(first.json().cost).toBe(0.24);
  expect(results().map(({ options }) => options)).toEqual([
    { ...look, seed: 7 },
    { negative_prompt: "rain" },
  ]);
  expect(rows("input.jsonl")[0]).toMatchObject(look);
  expect((await run(...file)).json()).toMatchObject({ cost: 0, made_count: 0 });
  // Another option is another run.
  expect((await run("--file", "p.jsonl")).code).toBe(6);

  const one = (...args: string[]) => run("a fox", "--seed", "7", ...args).then((made) => made.json());
  const [plain, low, high] = [await one(), await one("--quality", "low"), await one("--quality", "high")];
  expect([plain.cost, low.cost, high.cost]).toEqual([0.04, 0.04, 0.2]);
  expect(low.sha256).toBe(plain.sha256);
  const others = [
    high,
    await one("--background", "transparent"),
    await one("--negative-prompt", "snow"),
    await one("--size", "1600x912"),
  ];
  expect(new Set([plain, ...others].map(({ sha256 }) => sha256)).size).toBe(5);
  expect(others.at(-1)).toMatchObject({ width: 1600, height: 912 });

  edit([{ prompt: "a", quality: "ultra" }]);
  for (const args of [
    ["--file", "p.jsonl", "-o", "new"],
    ["a fox", "--quality", "ultra"],
  ]) {
    const { code, stderr } = await run(...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(/quality:? ultra: painter makes low, high/)]);
  }
});

it("a service that does not announce the options in real time is asked for none of them", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("p.jsonl"), '{"prompt":"a","background":"opaque"}');
  for (const [args, message] of [
    [["--file", "p.jsonl"], "p.jsonl:1: background: opaque: cannot be chosen in real time here"],
    [
      ["a fox", "--quality", "low"],
      "--quality low: cannot be chosen in real time here; use `imgbatch submit`",
    ],
  ] as const) {
    const { code, stderr } = await cli.run(["generate", ...args]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  }
  expect(cli.fake.requests).toEqual([]);
});

/** The list of models, with options. */
const announcing = (answer: Answer): Answer => {
  const list = JSON.parse(String(answer.body));
  const options = {
    aspect_ratio: ["1:1"],
    image_size: ["1K"],
    quality: ["low", "high"],
    default_quality: "low",
    seed: true,
  };
  const prices = [{ image_size: "1K", quality: "high", batch_image: 1, batch_hold: 2 }];
  const data = list.data.map((model: object) => ({ ...model, max_reference_images: 3, options, prices }));
  return { ...answer, body: Buffer.from(JSON.stringify({ ...list, data })) };
};

it("[LINE-1] a request names the options, and has the bytes of equal reference images once", async () => {
  const cli = await createCli();
  cli.fake.always(/GET .*models/, { lie: announcing });
  writeFileSync(join(cli.cwd, "photo.png"), await tinyPng());
  const lines = [
    { prompt: "a", quality: "high", seed: 3 },
    { prompt: "b", quality: "low" },
  ];
  writeFileSync(join(cli.cwd, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  const command = ["submit", "p.jsonl", "--reference", "photo.png"];
  const dry = await cli.here([...command, "--dry-run"]);
  expect(dry.stdout).toContain(
    "  1 image, vendorx-3.1-flash-image, 1K, quality high: $1.00 each\n  1 image, vendorx-3.1-flash-image, 1K, quality low: $0.0335 each\nestimated cost $1.04\n",
  );
  expect((await cli.here([...command, "--max-cost", "1"])).code).toBe(8);
  expect((await cli.here(command)).code).toBe(0);
  const { items } = JSON.parse(cli.fake.batches[0]?.request ?? "");
  expect(items).toMatchObject([
    { options: { quality: "high", seed: 3 }, reference_images: [{ mime_type: "image/png" }] },
    { reference_images: [{ sha256: expect.stringMatching(/^[0-9a-f]{64}$/) }] },
  ]);
  expect(Object.keys(items[1])).not.toContain("options");
  expect(Object.keys(items[1].reference_images[0])).toEqual(["sha256"]);
  expect(readdirSync(join(cli.cwd, "p-images", "images"))).toHaveLength(2);
});

it("[WHOLE-1] a whole run asks nobody, also if its lines write the default quality of their models", async () => {
  const cli = await createCli();
  cli.fake.always(/GET .*models/, { lie: announcing });
  const model = "vendorx-3-pro-image";
  const lines = [{ prompt: "a", quality: "low" }, { prompt: "b", quality: "low", model }, { prompt: "c" }];
  const write = (rows: readonly object[]) =>
    writeFileSync(join(cli.cwd, "p.jsonl"), rows.map((line) => JSON.stringify(line)).join("\n"));
  write(lines);
  expect((await cli.here(["submit", "p.jsonl"])).code).toBe(0);
  const asked = cli.fake.requests.length;
  write(lines.map((line) => ({ ...line, quality: "low" })));
  for (const flags of [[], ["--update"]])
    expect((await cli.here(["submit", "p.jsonl", ...flags])).code).toBe(0);
  expect(cli.fake.requests).toHaveLength(asked);
  write(lines.map((line) => ({ ...line, quality: "high" })));
  expect((await cli.here(["submit", "p.jsonl"])).code).toBe(6);
});

it("[LINE-3] --expand prints the ids of the run without its service, and says so where only that knows them", async () => {
  const [first, second] = findPreset("google")?.models.map(({ id }) => id) ?? [];
  const { type, edit, results } = await workplace([]);
  const ids = async (...flags: string[]) => {
    const { code, stdout, stderr } = await type("submit", "p.jsonl", "--dry-run", "--expand", ...flags);
    const rows = stdout.trim().split("\n");
    return { code, ids: rows.map((row) => JSON.parse(row).custom_id), stderr };
  };
  edit([{ prompt: "a fox", model: "vendorx-3.1-flash-image" }, { prompt: "an owl" }]);
  const drawn = await ids();
  expect(drawn.ids).toEqual(["item_000001", "item_000002"]);
  const elsewhere = await ids("--base-url", "http://127.0.0.1:9");
  expect([elsewhere.code, elsewhere.ids[0]]).toEqual([0, "item_000001-vendorx-3.1-flash-image"]);
  expect(elsewhere.stderr).toContain("the service was not asked for its first model");
  expect(drawn.stderr).not.toContain("not asked");
  expect((await type("submit", "p.jsonl")).code).toBe(0);
  expect(results().map((line) => line.custom_id)).toEqual(drawn.ids);
  edit([{ prompt: "a fox", model: first }, { prompt: "a fox", model: second }, { prompt: "an owl" }]);
  const preset = await ids("--upstream", "google", "-o", "other");
  expect(preset.ids).toEqual(["item_000001", `item_000002-${second}`, "item_000003"]);
});

it("[LINE-3] models stand side by side in one run, and another one makes only its own images", async () => {
  const [first, second] = ["vendorx-3.1-flash-image", "vendorx-3-pro-image"];
  const fox = { custom_id: "fox", prompt: "a fox" };
  const { edit, type, results, rows, read } = await workplace([fox, { prompt: "an owl" }]);
  expect((await type("submit", "p.jsonl")).code).toBe(0);
  const vars = { model: [first, second] };
  edit([
    { ...fox, vars },
    { prompt: "an owl", vars },
  ]);
  const dry = await type("submit", "p.jsonl", "--update", "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ image_count: 2, changes: { kept: 2, removed: [] } });
  expect((await type("submit", "p.jsonl", "--update")).code).toBe(0);
  expect(results().map((line) => [line.custom_id, line.model])).toEqual([
    ["fox", undefined],
    ["item_000002", undefined],
    [`fox-${second}`, second],
    [`item_000002-${second}`, second],
  ]);
  expect(rows("input.jsonl").map(({ model }) => model)).toEqual([undefined, undefined, second, second]);
  const { batches } = JSON.parse(read("imgbatch.json"));
  expect(batches.map(({ model }: { model: string }) => model)).toEqual([first, second]);
});

it("[LINE-3] a retry keeps model, options and seed of each failed image", async () => {
  const [first, second] = ["vendorx-3.1-flash-image", "vendorx-3-pro-image"];
  const fox = {
    prompt: "a fox [[fail:PROVIDER_ITEM_FAILED]]",
    ...{ quality: "low", seed: 5, output_count: 2 },
    vars: { model: [first, second] },
  };
  const { type, rows, read } = await workplace([fox, { prompt: "an owl", model: first }]);
  expect((await type("submit", "p.jsonl")).code).toBe(4);
  const failed = (model: string | undefined, end: string, seed: number) => ({
    custom_id: `item_000001${end}`,
    prompt: fox.prompt,
    ...(model === undefined ? {} : { model }),
    quality: "low",
    seed,
  });
  expect(rows("retry.jsonl")).toEqual([
    failed(undefined, "_01", 5),
    failed(undefined, "_02", 6),
    failed(second, `-${second}_01`, 5),
    failed(second, `-${second}_02`, 6),
  ]);
  const dry = await type("retry", "p-images", "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ image_count: 4, batch_count: 2 });
  expect((await type("retry", "p-images")).code).toBe(4);
  const { batches } = JSON.parse(read("imgbatch.json"));
  const again = batches.filter(({ round }: { round: number }) => round === 1);
  expect(again.map(({ model }: { model: string }) => model)).toEqual([first, second]);
  for (const { id } of again) {
    const { items } = (await type("items", id, "--json")).json() as { items: { options: object }[] };
    expect(items.map(({ options }) => options)).toEqual([
      { quality: "low", seed: 5 },
      { quality: "low", seed: 6 },
    ]);
  }
});

it("[LINE-3] without the first model, the images of the others stay", async () => {
  const [first, second] = ["vendorx-3.1-flash-image", "vendorx-3-pro-image"];
  const { edit, type, planned } = await workplace([{ prompt: "a fox", vars: { model: [first, second] } }]);
  expect((await type("submit", "p.jsonl")).code).toBe(0);
  edit([{ prompt: "a fox", model: second }]);
  expect(await planned("--update")).toMatchObject({
    image_count: 0,
    changes: { kept: 1, removed: ["item_000001"] },
  });
});

const MIXED = [
  '{"custom_id":"plain","prompt":"plain"}',
  '{"custom_id":"wide","prompt":"wide","aspect_ratio":"16:9"}',
  '{"custom_id":"big","prompt":"big","size":"2k"}',
];

async function bench(lines: readonly string[] = MIXED): Promise<InProcessCli> {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("my p.jsonl"), `${lines.join("\n")}\n`);
  return cli;
}

/** The shape that each request asked for, by its prompt. */
const asked = ({ fake }: InProcessCli) =>
  Object.fromEntries(fake.requests.map(({ prompt, json }) => [prompt, json.generationConfig.imageConfig]));

it("generate makes each image in the ratio and size of its line, else in those of the command", async () => {
  const cli = await bench();
  const command = ["generate", "--file", "my p.jsonl", "-o", "out", "--aspect-ratio", "1:1"];
  expect((await cli.run(command)).code).toBe(0);
  expect(asked(cli)).toEqual({
    plain: { aspectRatio: "1:1" },
    wide: { aspectRatio: "16:9" },
    big: { aspectRatio: "1:1", imageSize: "2K" },
  });
  expect(cli.fake.requests.every(({ json }) => !("seed" in json.generationConfig))).toBe(true);
  writeFileSync(cli.path("my p.jsonl"), `${MIXED.join("\n").replace("16:9", "3:2")}\n`);
  const other = await cli.run(command);
  expect(other.code).toBe(6);
  expect(other.stderr).toContain("out");
});

it("generate asks for the seed of each image of a line: each further one adds 1", async () => {
  const cli = await bench(['{"prompt":"a","seed":3,"output_count":2}', '{"prompt":"b"}']);
  expect((await cli.run(["generate", "--file", "my p.jsonl", "--seed", "9", "-j", "1"])).code).toBe(0);
  expect((await cli.run(["generate", "c", "--seed", "0"])).code).toBe(0);
  const seeds = cli.fake.requests.map(({ prompt, json }) => [prompt, json.generationConfig.seed]);
  expect(seeds).toEqual([
    ["a", 3],
    ["a", 4],
    ["b", 9],
    ["c", 0],
  ]);
});

it("failed images keep their ratio and size in retry.jsonl, and the command for it keeps the model", async () => {
  const cli = await bench();
  cli.fake.always(/wide|plain/, { status: 400, message: "No." });
  const command = ["generate", "--file", "my p.jsonl", "-o", "out", "--size", "512"];
  const { code, stderr } = await cli.run([...command, "--model", "vendorx-3-pro-image"]);
  expect(code).toBe(4);
  expect(stderr).toContain("generate --file out/retry.jsonl --output out-retry --model vendorx-3-pro-image");
  const lines = readFileSync(cli.path("out/retry.jsonl"), "utf8").trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    { custom_id: "plain", prompt: "plain", size: "512" },
    { custom_id: "wide", prompt: "wide", aspect_ratio: "16:9", size: "512" },
  ]);
});

it("a ratio or size that the model does not make is named by its line, and nothing is sent", async () => {
  const cli = await bench();
  cli.fake.models = [
    {
      name: "models/vendorx-3.1-flash-image",
      supportedGenerationMethods: ["generateContent"],
      aspectRatios: ["1:1"],
      imageSizes: ["1K"],
    },
  ];
  const { code, stderr } = await cli.run(["generate", "--file", "my p.jsonl"]);
  expect(code).toBe(2);
  expect(stderr).toContain("my p.jsonl:2: aspect_ratio: 16:9: vendorx-3.1-flash-image makes 1:1");
  expect(stderr).toContain("my p.jsonl:3: size: 2K: vendorx-3.1-flash-image makes 1K");
  expect(cli.fake.requests).toHaveLength(0);
});

it("the limit of the cost counts each image with the price of its size", async () => {
  const cli = await bench();
  const images = { "1K": 0.1, "2K": 0.3 };
  cli.fake.models = [
    {
      name: "models/vendorx-3.1-flash-image",
      supportedGenerationMethods: ["generateContent"],
      pricing: { images },
    },
  ];
  const command = ["generate", "--file", "my p.jsonl", "--max-cost"];
  const refused = await cli.run([...command, "0.49"]);
  expect(refused.code).toBe(8);
  expect(refused.stderr).toContain("3 images would cost $0.50, more than --max-cost $0.49");
  expect(cli.fake.requests).toHaveLength(0);
  const made = await cli.run([...command, "0.5"]);
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("3 of 3 images on disk, $0.50 now")]);
  const again = await cli.run([...command, "0", "--json"]);
  expect([again.code, again.json()]).toMatchObject([0, { made_count: 0, cost: 0 }]);
});

it("the other columns of a table come back with the results and in retry.jsonl, and never reach the service", async () => {
  const cli = await createCli({ failing: /owl/ });
  await writeFile(join(cli.cwd, "p.csv"), "prompt,custom_id,shop\na red fox,fox,north\nan owl,,south\n");
  const { code, stderr } = await cli.here(["submit", "p.csv"]);
  expect([code, stderr]).toEqual([4, expect.stringContaining("other fields are kept as metadata: shop\n")]);
  const read = async (name: string) =>
    (await readFile(join(cli.cwd, "p-images", name), "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  expect(await read("results.jsonl")).toMatchObject([
    {
      custom_id: "fox",
      source_id: "fox",
      file: "p.csv",
      line: 2,
      prompt: "a red fox",
      metadata: { shop: "north" },
    },
    { custom_id: "item_000002", source_id: null, file: "p.csv", line: 3, metadata: { shop: "south" } },
  ]);
  expect(await read("retry.jsonl")).toEqual([
    { custom_id: "item_000002", prompt: "an owl", metadata: { shop: "south" } },
  ]);
  expect(cli.fake.batches[0]?.request).not.toContain("shop");
  await writeFile(join(cli.cwd, "p.csv"), "shop,prompt,custom_id\n\neast,a red fox,fox\nsouth,an owl,\n");
  await cli.here(["submit", "p.csv", "--no-retry"]);
  expect((await read("results.jsonl"))[0]).toMatchObject({ line: 3, metadata: { shop: "east" } });
  cli.fake.options.failing = /none/;
  expect((await cli.here(["retry", "p-images"])).code).toBe(0);
  expect((await read("results.jsonl"))[1]).toMatchObject({ status: "success", metadata: { shop: "south" } });
  expect(cli.fake.batches).toHaveLength(2);
  expect((await cli.here(["submit", "p.csv", "--strict"])).code).toBe(2);
  // A column that a prompt uses is a variable: nothing is said of it.
  const used = await cli.here(["submit", "p.csv", "-o", "used", "--prompt", "{{prompt}} in the {{shop}}"]);
  expect(used.stderr).not.toContain("kept as metadata");
});

it("a column called metadata is kept as text", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.csv"), "prompt,metadata\na red fox,north\nan owl,\n");
  expect((await cli.here(["submit", "p.csv"])).code).toBe(0);
  const results = await readFile(join(cli.cwd, "p-images", "results.jsonl"), "utf8");
  const kept = results
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).metadata);
  expect(kept).toEqual([{ metadata: "north" }, undefined]);
});

it("--expand refuses an option that the model does not take, as --dry-run does", async () => {
  const { type, edit } = await workplace([]);
  edit([
    { prompt: "a fox", quality: "splendid" },
    { prompt: "an owl", aspect_ratio: "7:5" },
  ]);
  const [dry, expanded] = [
    await type("submit", "p.jsonl", "--dry-run"),
    await type("submit", "p.jsonl", "--dry-run", "--expand"),
  ];
  expect(dry.stderr).toContain("p.jsonl:2: aspect_ratio: 7:5: ");
  expect([expanded.code, expanded.stderr]).toEqual([
    2,
    dry.stderr.replace("--dry-run", "--dry-run --expand"),
  ]);
});

it("a seed above the bound of the model is refused with file, line and field, also that of the last image", async () => {
  for (const { seed, maxSeed } of findPreset("google")?.models ?? [])
    if (seed) expect(maxSeed).toBe(2 ** 31 - 1);
  const cli = await createCli();
  const bounded = (answer: Answer): Answer => {
    const list = JSON.parse(String(announcing(answer).body));
    for (const { options } of list.data) options.max_seed = 2 ** 31 - 1;
    return { ...answer, body: Buffer.from(JSON.stringify(list)) };
  };
  cli.fake.always(/GET .*models/, { lie: bounded });
  const most = 2 ** 31 - 1;
  const lines = [
    { prompt: "a fox", seed: most },
    { prompt: "a fox", seed: most + 1 },
    { prompt: "an owl", seed: most, output_count: 2 },
  ];
  writeFileSync(join(cli.cwd, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  const { code, stderr } = await cli.here(["submit", "p.jsonl", "--dry-run"]);
  expect(code).toBe(2);
  const takes = "2147483648: vendorx-3.1-flash-image takes seeds from 0 to 2147483647";
  expect(stderr).toContain(`p.jsonl:2: seed: ${takes}`);
  expect(stderr).toContain(`p.jsonl:3: seed: ${takes}`);
  expect(stderr).not.toContain("p.jsonl:1:");
});

const PROMPTS = JSON.stringify({
  custom_id: "poster",
  prompt: "a {{animal}} in {{season}}",
  vars: { season: "@seasons.txt" },
});

it("[VAR-1] submit makes an image of each combination, --expand prints them, and another value makes only the new ones", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), PROMPTS);
  await writeFile(join(cli.cwd, "seasons.txt"), "winter\nspring\n");
  const submit = ["submit", "p.jsonl", "--var", "animal=fox,owl"];
  const expanded = await cli.here([...submit, "--dry-run", "--expand"]);
  expect([expanded.code, cli.fake.batches.length]).toEqual([0, 0]);
  expect(expanded.stderr).toContain("1 line × 2 × 2 = 4 images\n");
  const lines = expanded.stdout.trim().split("\n");
  expect(JSON.parse(lines[1] ?? "")).toEqual({ custom_id: "poster-winter-owl", prompt: "a owl in winter" });
  expect((await cli.here(submit)).code).toBe(0);

  await writeFile(join(cli.cwd, "seasons.txt"), "winter\nautumn\nspring\n");
  expect((await cli.here([...submit, "--update"])).code).toBe(0);
  expect(cli.fake.batches.map(({ items }) => items.map(({ prompt }) => prompt))).toEqual([
    ["a fox in winter", "a owl in winter", "a fox in spring", "a owl in spring"],
    ["a fox in autumn", "a owl in autumn"],
  ]);
  expect(await readdir(join(cli.cwd, "p-images", "images"))).toHaveLength(6);
  expect((await cli.here([...submit, "--expand"])).code).toBe(2);
});
