import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { FAKE_KEY } from "../support/fake-service.ts";
import { startForeignService } from "../support/foreign-service.ts";
import { cleanEnvironment, imgbatch } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

it("a whole run against a service of another maker: every image here, checked as far as it can be", async () => {
  const foreign = await startForeignService();
  onTestFinished(() => foreign.close());
  const cwd = await tempDir();
  const prompts = [
    { custom_id: "a", prompt: "a cat" },
    { custom_id: "bad", prompt: "blocked" },
    { custom_id: "b", prompt: "a dog", output_count: 2 },
  ];
  await writeFile(join(cwd, "p.jsonl"), prompts.map((prompt) => JSON.stringify(prompt)).join("\n"));
  const env = cleanEnvironment({ IMGBATCH_BASE_URL: foreign.url, IMGBATCH_API_KEY: FAKE_KEY });
  const submit = () =>
    imgbatch(["submit", "p.jsonl", "--json", "--interval", "20ms", "--allow-failures", "1"], { cwd, env });

  const first = await submit();
  expect([first.code, first.stderr]).toEqual([0, expect.stringContaining("3 of 4 images")]);
  const document = JSON.parse(first.stdout);
  expect(document).toMatchObject({ ok: true, replayed: false, counts: { total: 4, success: 3, failed: 1 } });
  expect(document.batches[0]).toMatchObject({ status: "completed", region: "eu" });

  const text = await readFile(join(cwd, "p-images", "results.jsonl"), "utf8");
  const lines = text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(
    lines.map(({ custom_id, status, verified, files }) => [custom_id, status, verified, files.length]),
  ).toEqual([
    ["a", "success", "crc32", 1],
    ["bad", "failed", undefined, 0],
    ["b_01", "success", "crc32", 1],
    ["b_02", "success", null, 1],
  ]);
  expect(lines[1].error).toEqual({ code: "UNKNOWN", message: "not allowed", source: null });
  expect((await readdir(join(cwd, "p-images", "images"))).sort()).toEqual(["a.png", "b_01.png", "b_02.png"]);

  const posts = foreign.seen.filter((line) => line.startsWith("POST")).length;
  const again = await submit();
  expect([again.code, JSON.parse(again.stdout).replayed, JSON.parse(again.stdout).fetched_count]).toEqual([
    0,
    true,
    0,
  ]);
  expect(foreign.seen.filter((line) => line.startsWith("POST"))).toHaveLength(posts);
});
