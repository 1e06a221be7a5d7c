import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";

/** A picture of its own for each prompt: a plain one where the prompt says so. */
async function pictureOf(body: string): Promise<Buffer> {
  const prompt = String(JSON.parse(body).prompt);
  const spot = prompt.length * 12;
  const disc = `<circle cx="${spot}" cy="${250 - spot / 2}" r="70" fill="#225"/>`;
  const svg = `<svg width="256" height="256"><rect width="256" height="256" fill="#eee"/>${prompt.includes("plain") ? "" : disc}</svg>`;
  return sharp(Buffer.from(svg)).png().toBuffer();
}

/** A directory with three prompts, and an upstream that counts what it is asked and bills 0.10 for each image. */
async function project() {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GITHUB_ACTIONS", "");
  vi.stubEnv("LAB_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  let askedCount = 0;
  const server = createServer(async (request, response) => {
    const chunks: Uint8Array[] = [];
    for await (const chunk of request) chunks.push(chunk);
    response.setHeader("content-type", "application/json");
    const isAsked = request.method === "POST";
    if (isAsked) askedCount++;
    const picture = isAsked ? await pictureOf(Buffer.concat(chunks).toString("utf8")) : null;
    response.end(JSON.stringify({ data: picture ? [{ b64_json: picture.toString("base64") }] : [] }));
  });
  const baseUrl = `${await listening(server)}/v1`;
  const own = { name: "lab", type: "openai", baseUrl, apiKeyEnv: "LAB_KEY", concurrency: 1, models: ["m"] };
  const models = [{ id: "m", prices: { "1K": 0.1 }, maxReferenceImages: 4 }];
  const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers: [own], models, groups }));
  const prompts = [
    { custom_id: "fox", prompt: "a fox" },
    { custom_id: "sky", prompt: "a plain sky" },
    { custom_id: "owl", prompt: "an owl at night" },
  ];
  writeFileSync(join(cwd, "p.jsonl"), prompts.map((line) => JSON.stringify(line)).join("\n"));
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const submit = (...args: string[]) => run("submit", "p.jsonl", "-o", "out", "--max-cost", "1", ...args);
  const read = (name: string) => readFileSync(join(cwd, name), "utf8");
  return { cwd, run, submit, read, asked: () => askedCount };
}

it("[REV-3] a picture of one colour is told in the summary, on the contact sheet and in the review, and the run has succeeded", async () => {
  const { submit, run, read } = await project();
  const made = await submit();
  expect([made.code, made.stderr]).toEqual([
    0,
    expect.stringMatching(/^1 image looks odd: one flat colour \(1\); see imgbatch review out$/m),
  ]);
  expect(read("out/results.jsonl")).not.toContain("odd");
  const sheet = read("out/index.html");
  expect(sheet.match(/<li class="ok odd">/g)).toHaveLength(1);
  expect(sheet).toContain('<p class="odd" dir="auto">looks odd: one flat colour</p>');
  const [checks, results] = [read("out/checks.jsonl"), read("out/results.jsonl")];
  expect(checks.trim().split("\n")).toHaveLength(3);
  const again = await submit();
  expect([again.code, again.stderr]).toEqual([0, expect.stringContaining("1 image looks odd")]);
  expect([read("out/checks.jsonl"), read("out/results.jsonl")]).toEqual([checks, results]);
  const packed = await run("pack", "out", "-o", "out/checks.jsonl", "--force");
  expect(packed.stderr).toContain("out/checks.jsonl belongs to the run");
});

it("[REV-3] a look that fails changes nothing of the run, and drawings are not looked at", async () => {
  const { cwd, submit, run, read } = await project();
  await submit("--dry-run");
  const drawn = await run("submit", "p.jsonl", "-o", "drawn", "--model", "procedural-draft", "--draft");
  expect(existsSync(join(cwd, "drawn/checks.jsonl"))).toBe(false);
  expect(drawn.stderr).not.toContain("odd");
  const made = await submit();
  writeFileSync(join(cwd, "out/checks.jsonl"), `{"a line of another program"}\n`);
  const again = await submit();
  expect([made.code, again.code]).toEqual([0, 0]);
  expect(read("out/checks.jsonl").split("\n")[0]).toBe(`{"a line of another program"}`);
});
