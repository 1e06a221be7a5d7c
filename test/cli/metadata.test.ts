import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createCli } from "../support/cli.ts";

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
  await cli.here(["submit", "p.csv"]);
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
