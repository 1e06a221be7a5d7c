import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createCli } from "../support/cli.ts";

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
