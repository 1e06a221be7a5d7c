import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { createCli } from "../support/cli.ts";
import { type Answer, png, type ZippedFile } from "../support/fake-service.ts";

/** No path of a URL can hold it but encoded. */
const ID = "eu/batch~2026:α";
const PROMPTS = [
  { custom_id: "a", prompt: "a cat" },
  { custom_id: "bad", prompt: "blocked" },
  { custom_id: "b", prompt: "a dog", output_count: 2 },
];

/** `a` and `b` go by their names; the third is only numbered, so that nobody can tell whose it is. */
function foreignZip(files: ZippedFile[]): ZippedFile[] {
  const named = files.map(({ name, data }, index) => ({
    name: `results/${index < 2 ? name.replace(".png", ".PNG") : `${index}.png`}`,
    data,
  }));
  const manifest = { version: 3, results: [{ ref: "a" }] };
  return [
    ...named,
    { name: "results/manifest.json", data: Buffer.from(JSON.stringify(manifest)) },
    { name: "README.txt", data: Buffer.from("thanks") },
  ];
}

it("a whole run against a service of another maker: every image here, checked as far as it can be", async () => {
  const statuses = ["submitting", "running", "finalizing", "completed"];
  const cli = await createCli({
    foreign: true,
    failing: /blocked/,
    itemPage: 2,
    statuses,
    tamper: foreignZip,
  });
  const strange = (answer: Answer, status = 200): Answer => {
    const own = { region: "eu", item_count: null, success_count: "all", error: "" };
    const body = Buffer.from(JSON.stringify({ ...JSON.parse(String(answer.body)), ...own, id: ID }));
    return { ...answer, status, body, headers: { "content-type": "text/plain" } };
  };
  cli.fake.fault(/^POST/, {
    lie: (answer) => {
      for (const batch of cli.fake.batches) Object.assign(batch, { id: ID });
      return strange(answer, 201);
    },
  });
  cli.fake.always(/batches\/[^/]+$/, { lie: strange });
  const bare = (body: Buffer) =>
    Buffer.from(
      String(body)
        .replace(/"code":"\w+",/, "")
        .replace(',"source":"provider"', ""),
    );
  cli.fake.always(/items\?/, { lie: (answer) => ({ ...answer, body: bare(answer.body) }) });
  cli.fake.fault(/models/, { status: 200, body: { data: [{ id: "vendorx-3.1-flash-image", owner: "x" }] } });
  const soon = new Date(Date.now() + 1000).toUTCString();
  cli.fake.fault(/download/, { status: 429, headers: { "retry-after": soon }, body: "<h1>Slow down</h1>" });
  writeFileSync(join(cli.cwd, "p.jsonl"), PROMPTS.map((prompt) => JSON.stringify(prompt)).join("\n"));
  const submit = () =>
    cli.here(["submit", "p.jsonl", "--json", "--interval", "20ms", "--allow-failures", "1"]);

  const first = await submit();
  expect([first.code, first.stderr]).toEqual([0, expect.stringContaining("3 of 4 images")]);
  expect(first.json()).toMatchObject({
    ...{ ok: true, replayed: false, counts: { total: 4, success: 3, failed: 1 } },
    batches: [{ id: ID, status: "completed", region: "eu" }],
  });
  const text = readFileSync(join(cli.cwd, "p-images", "results.jsonl"), "utf8");
  const lines = text.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { custom_id: "a", status: "success", verified: "crc32", files: [{}] },
    {
      custom_id: "bad",
      status: "failed",
      files: [],
      error: { code: "UNKNOWN", message: "It did not work.", source: null },
    },
    { custom_id: "b_01", status: "success", verified: "crc32", files: [{}] },
    { custom_id: "b_02", status: "success", verified: null, files: [{}] },
  ]);
  const images = join(cli.cwd, "p-images", "images");
  expect(readdirSync(images).sort()).toEqual(["a.png", "b_01.png", "b_02.png"]);
  expect(readFileSync(join(images, "b_02.png"))).toEqual(png("b_02"));

  // What is allowed to fail is not asked for again: nobody knows what such a service takes for it.
  const again = await submit();
  expect([again.code, again.stderr]).toEqual([
    0,
    expect.stringContaining(
      "1 failed image left as before, within --allow-failures; imgbatch retry p-images",
    ),
  ]);
  expect(cli.fake.count(/^POST/)).toBe(1);
});
