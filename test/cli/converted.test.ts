import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { tempDir } from "../support/temp-dir.ts";

it("an image of another type than asked for is converted, and what the upstream sent stays in versions/", async () => {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  const cwd = await tempDir();
  const sent = await sharp({ create: { width: 8, height: 8, channels: 3, background: "#c00" } })
    .png()
    .toBuffer();
  writeFileSync(join(cwd, "picture"), sent);
  writeFileSync(join(cwd, "p.jsonl"), '{"custom_id": "fox", "prompt": "a fox"}');
  const argv = ["cp", join(cwd, "picture"), "{output}"];
  const config = {
    models: [{ id: "mine", sizes: ["1K"], prices: { "1K": 0 } }],
    providers: [{ name: "program", type: "command", argv, free: true }],
  };
  writeFileSync(join(cwd, "c.json"), JSON.stringify(config));
  const submit = ["submit", "p.jsonl", "-o", "out", "--mime-type", "image/webp"];
  const run = () => runInProcess([...submit, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const read = (path: string) => readFileSync(join(cwd, "out", path));

  const made = await run();
  expect([made.code, made.stderr]).toEqual([0, expect.not.stringContaining("asked: size, type")]);
  const { files, notes } = JSON.parse(read("results.jsonl").toString());
  expect(files).toMatchObject([
    { path: "images/fox.webp", mime_type: "image/webp", width: 8, original: { path: "versions/fox.png" } },
  ]);
  expect(notes).toContain("converted to image/webp; the upstream sent image/png, see versions/fox.png");
  expect(notes.join()).not.toContain("asked for image/webp");
  expect(read("versions/fox.png").equals(sent)).toBe(true);
  expect((await sharp(read("images/fox.webp")).metadata()).format).toBe("webp");
  expect(existsSync(join(cwd, "out/images/fox.png"))).toBe(false);

  const results = read("results.jsonl");
  expect((await run()).stderr).toContain("nothing to fetch");
  writeFileSync(join(cwd, "out/images/fox.webp"), "damaged");
  expect((await run()).code).toBe(0);
  expect(read("results.jsonl").equals(results)).toBe(true);
  expect((await sharp(read("images/fox.webp")).metadata()).format).toBe("webp");
  expect(existsSync(join(cwd, "out/images/fox.png"))).toBe(false);
});
