import { readFileSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { createInProcessCli, type InProcessCli } from "../support/cli-in-process.ts";

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
