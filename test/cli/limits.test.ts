import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { createInProcessCli, runInProcess } from "../support/cli-in-process.ts";
import { png } from "../support/fake-service.ts";
import { allowKeyFile } from "../support/secrets.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const line = (fields: object) => `${JSON.stringify({ prompt: "a fox", ...fields })}\n`;

it("the embedded service's own limits hold for the prompts of a command", async () => {
  const cwd = await tempDir();
  const data = await tempDir();
  writeFileSync(join(cwd, "wide.json"), '{"limits":{"promptChars":9000,"outputCountPerItem":10}}');
  writeFileSync(join(cwd, "p.jsonl"), line({ prompt: "word ".repeat(1700), output_count: 9 }));
  const submit = (...args: string[]) =>
    runInProcess(["submit", "p.jsonl", "--dry-run", "--data", data, ...args], { cwd });
  expect((await submit("--config", "wide.json")).code).toBe(0);
  const { code, stderr } = await submit();
  expect(code).toBe(2);
  expect(stderr).toContain("p.jsonl:1: prompt: has 8499 characters; at most 8000 are allowed");
  expect(stderr).toContain("p.jsonl:1: output_count: must be a whole number from 1 to 4, not 9");
  expect((await submit("--count", "9")).stderr).toContain("--count: write a whole number from 1 to 4, not 9");
});

it("a service announces its limits with its models, and they are told with file and line", async () => {
  const service = await startTestService({
    config: { limits: { promptChars: 9000, outputCountPerItem: 6 } },
  });
  const list = await (await service.ask("/models")).json();
  expect(list.limits).toMatchObject({ prompt_chars: 9000, output_count_per_item: 6, items_per_batch: 200 });
  const cwd = await tempDir();
  const keyFile = join(await tempDir(), "key");
  writeFileSync(keyFile, service.credentials.api_key);
  allowKeyFile(keyFile);
  writeFileSync(
    join(cwd, "p.jsonl"),
    line({ output_count: 5 }) + line({ prompt: "word ".repeat(1900), output_count: 7 }),
  );
  const { code, stderr } = await runInProcess(
    ["submit", "p.jsonl", "--dry-run", "--base-url", service.url, "--api-key-file", keyFile],
    { cwd },
  );
  expect(code).toBe(2);
  expect(stderr).toContain("p.jsonl:2: prompt: has 9499 characters; at most 9000 are allowed");
  expect(stderr).toContain("p.jsonl:2: output_count: must be a whole number from 1 to 6, not 7");
  expect(stderr).not.toContain("p.jsonl:1:");
  const realtime = await runInProcess(
    ["generate", "--file", "p.jsonl", "--base-url", service.url, "--api-key-file", keyFile],
    { cwd },
  );
  expect(realtime.code).toBe(2);
  expect(realtime.stderr).toContain("p.jsonl:2: prompt: has 9499 characters; at most 9000 are allowed");
});

it("a line that no batch of the service holds, and a prompt of generate that is too long, are told before anything is sent", async () => {
  const config = { limits: { promptChars: 9000, referenceImagesPerBatch: 5 } };
  const service = await startTestService({ config });
  const cwd = await tempDir();
  const keyFile = join(await tempDir(), "key");
  writeFileSync(keyFile, service.credentials.api_key);
  allowKeyFile(keyFile);
  const at = ["--base-url", service.url, "--api-key-file", keyFile];
  writeFileSync(join(cwd, "a.png"), png("a"));
  const many = line({ output_count: 3, reference_images: ["a.png", "a.png"] });
  writeFileSync(join(cwd, "p.jsonl"), many + line({ size: "3K" }));
  const { code, stderr } = await runInProcess(["submit", "p.jsonl", ...at], { cwd });
  expect(code).toBe(2);
  expect(stderr).toContain(
    "p.jsonl:1: reference_images: 2 images for each of 3 are 6 in a batch; at most 5 are",
  );
  expect(stderr).toContain('p.jsonl:2: size: "3K"');
  const long = await runInProcess(["generate", "word ".repeat(1900), ...at], { cwd });
  expect([long.code, long.stderr]).toEqual([
    2,
    expect.stringContaining("has 9499 characters; at most 9000 are"),
  ]);
});

it("an input image of generate may be as large as the service that makes the image says", async () => {
  const cwd = await tempDir();
  const data = await tempDir();
  writeFileSync(join(cwd, "small.json"), '{"limits":{"referenceImageBytes":1000}}');
  const large = await sharp(randomBytes(3 * 64 * 64), { raw: { width: 64, height: 64, channels: 3 } })
    .png()
    .toBuffer();
  writeFileSync(join(cwd, "fox.png"), large);
  const generate = ["generate", "a fox", "-i", "fox.png", "--data", data];
  const { code, stderr } = await runInProcess([...generate, "--config", "small.json"], { cwd });
  expect(code).toBe(2);
  expect(stderr).toContain(`has ${large.length} bytes; at most 1000 are allowed`);
  expect((await runInProcess([...generate, "-o", "made.png"], { cwd })).code).toBe(0);
});

it("a retry makes batches that are no larger than the service takes", async () => {
  const cwd = await tempDir();
  const data = await tempDir();
  writeFileSync(join(cwd, "small.json"), '{"limits":{"itemsPerBatch":2}}');
  writeFileSync(
    join(cwd, "p.jsonl"),
    line({ prompt: "a fox [[fail:PROVIDER_ITEM_FAILED]]", output_count: 3 }),
  );
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "small.json", "--data", data, "--json"], { cwd });
  expect((await run("submit", "p.jsonl")).code).toBe(5);
  const { stdout } = await run("retry", "p-images", "--dry-run");
  expect(JSON.parse(stdout)).toMatchObject({ image_count: 3, batch_count: 2 });
});

it("a service that announces nothing decides itself", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("p.jsonl"), line({ prompt: "word ".repeat(1700) }));
  const { stderr } = await cli.run(["submit", "p.jsonl", "--dry-run", "-m", "x"]);
  expect(stderr).not.toContain("at most 8000");
});

it("an upstream whose models take longer prompts makes that the limit, unless the configuration names one", () => {
  const charsOf = (value: object) => parseConfig(value, "test").limits.promptChars;
  expect(charsOf({})).toBe(8000);
  expect(charsOf({ providers: [{ preset: "openai" }] })).toBe(32_000);
  expect(charsOf({ providers: [{ preset: "openai" }, { preset: "google" }] })).toBe(8000);
  expect(charsOf({ providers: [{ preset: "openai" }], limits: { promptChars: 9000 } })).toBe(9000);
});
