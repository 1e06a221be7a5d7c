import { execFile } from "node:child_process";
import { copyFile, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { beforeEach, expect, it } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { closeBrowserAtEnd, openPage } from "../support/browser.ts";
import { CHROMIUM } from "../support/chromium.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";
import { readZip } from "../support/zip.ts";

closeBrowserAtEnd();

const run = promisify(execFile);
const SIDE = ["index.html", "input.jsonl", "results.jsonl"];
let made: string;

/** A run of two images and one prompt that is refused, in a batch each. */
beforeEach(async () => {
  made = await tempDir();
  const prompts = [
    { custom_id: "fox", prompt: "a fox" },
    { custom_id: "owl", prompt: "an owl [[refuse]]" },
    { custom_id: "sea", prompt: "the sea" },
  ];
  await writeFile(join(made, "p.jsonl"), prompts.map((line) => JSON.stringify(line)).join("\n"));
  const args = [
    "submit",
    "p.jsonl",
    "--output",
    "run",
    "--data",
    join(made, "data"),
    "--allow-failures",
    "1",
    "--max-batch",
    "1",
  ];
  expect((await runInProcess(args, { cwd: made })).code).toBe(0);
});

const pack = (...args: string[]) => runInProcess(["pack", ...args], { cwd: made });
const entriesOf = async (name: string) => readZip(await readFile(join(made, name)));

async function unpack(name: string): Promise<string> {
  const dir = await tempDir();
  for (const [path, bytes] of await entriesOf(name)) {
    await mkdir(dirname(join(dir, path)), { recursive: true });
    await writeFile(join(dir, path), bytes);
  }
  return dir;
}

it("[PACK-1] a run becomes one ZIP, the same bytes wherever and whenever it is packed", async () => {
  const first = await pack("run");
  expect(first).toMatchObject({ code: 0, stdout: "run.zip\n" });
  expect(first.stderr).toContain("checking the images");
  const entries = await entriesOf("run.zip");
  expect([...entries.keys()].sort()).toEqual(["images/fox.png", "images/sea.png", ...SIDE]);
  for (const name of ["images/fox.png", "input.jsonl", "results.jsonl"])
    expect(entries.get(name)).toEqual(await readFile(join(made, "run", name)));
  const { batches } = JSON.parse(await readFile(join(made, "run", "imgbatch.json"), "utf8"));
  const lines = String(entries.get("results.jsonl")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line).batch_id)).toEqual(batches.map(({ id }: { id: string }) => id));
  const env = { ...process.env, TZ: "Asia/Tokyo" };
  const { stdout } = await run(BIN, ["pack", join(made, "run"), "--output", "again.zip", "--json"], {
    cwd: made,
    env,
  });
  expect(JSON.parse(stdout)).toMatchObject({ ok: true, images: 2, previews: false });
  expect(await readFile(join(made, "again.zip"))).toEqual(await readFile(join(made, "run.zip")));
});

it("[PACK-1] previews are small pictures, and the results say what they are", async () => {
  const prompts = JSON.stringify({ custom_id: "hare", prompt: "a hare", size: "2K" });
  await writeFile(join(made, "large.jsonl"), prompts);
  const args = ["generate", "--file", "large.jsonl", "--output", "large", "--data", join(made, "data")];
  expect((await runInProcess(args, { cwd: made })).code).toBe(0);
  expect(await pack("large", "--previews")).toMatchObject({ code: 0 });
  const entries = await entriesOf("large.zip");
  const line = JSON.parse(String(entries.get("results.jsonl")));
  const picture = entries.get("images/hare.webp") ?? Buffer.alloc(0);
  expect(line).toMatchObject({ custom_id: "hare", prompt: "a hare" });
  expect(line.files).toEqual([
    {
      path: "images/hare.webp",
      sha256: sha256Hex(picture),
      bytes: picture.length,
      mime_type: "image/webp",
      width: 1024,
      height: 1024,
    },
  ]);
  expect(String(entries.get("index.html"))).toContain('href="images/hare.webp"');
  expect(picture.includes("digitalsourcetype/")).toBe(true);
});

it.skipIf(CHROMIUM === null)("[PACK-1] the sheet works from the unpacked folder", async () => {
  expect((await pack("run", "--output", "sheet.zip", "--previews")).code).toBe(0);
  const dir = await unpack("sheet.zip");
  const page = await openPage(`file://${dir}/index.html`);
  await page.locator("li.fail").waitFor();
  expect(await page.locator("li.ok").count()).toBe(2);
  const links = await page
    .locator("a.pic")
    .evaluateAll((all) => all.map((each) => each.getAttribute("href")));
  expect(links).toEqual(["images/fox.webp", "images/sea.webp"]);
  for (const link of links) expect((await readFile(join(dir, link ?? ""))).length).toBeGreaterThan(1000);
});

it("[PACK-1] a download is packed, too, and a link in place of the prompts is not", async () => {
  const state = JSON.parse(await readFile(join(made, "run/imgbatch.json"), "utf8"));
  const args = ["download", state.batches[0].id, "--output", "got", "--data", join(made, "data")];
  expect(await runInProcess(args, { cwd: made })).toMatchObject({ stdout: "got\n" });
  expect(await pack("got")).toMatchObject({ code: 0, stdout: "got.zip\n" });
  const names = ["images/fox.png", "index.html", "results.jsonl"];
  expect([...(await entriesOf("got.zip")).keys()].sort()).toEqual(names);
  await writeFile(join(made, "secret"), "secret\n");
  await rm(join(made, "run/input.jsonl"));
  await symlink("../secret", join(made, "run/input.jsonl"));
  expect(await pack("run")).toMatchObject({ code: 6, stdout: "" });
});

it("[PACK-2] missing images are exit 7 that names them, and an existing file is exit 6 without --force", async () => {
  const [from, to] = [join(made, "run"), join(made, "broken")];
  await mkdir(join(to, "images"), { recursive: true });
  for (const name of ["imgbatch.json", "input.jsonl", "results.jsonl", "images/sea.png"])
    await copyFile(join(from, name), join(to, name));
  const missing = await pack("broken");
  expect(missing.code).toBe(7);
  expect(missing.stderr).toContain("  images/fox.png\nnext: imgbatch download broken\n");
  await writeFile(join(to, "images/fox.png"), "changed");
  expect((await pack("broken", "--json")).json()).toMatchObject({
    exit_code: 7,
    error: { code: "IMAGES_MISSING", details: ["images/fox.png"] },
  });
  await writeFile(join(made, "mine.zip"), "mine");
  expect(await pack("run", "--output", "mine.zip")).toMatchObject({
    code: 6,
    stderr: expect.stringContaining("add --force"),
  });
  expect(await readFile(join(made, "mine.zip"), "utf8")).toBe("mine");
  expect((await pack("run", "--output", "mine.zip", "--force")).code).toBe(0);
  expect(await pack("nothing")).toMatchObject({ code: 2 });
});

it("[PACK-2] --force replaces no file of the run itself", async () => {
  for (const name of ["images/fox.png", "results.jsonl", "imgbatch.json"]) {
    const before = await readFile(join(made, "run", name));
    const { code, stderr } = await pack("run", "--force", "--output", `run/../run/${name}`);
    expect([code, stderr]).toEqual([6, expect.stringContaining("belongs to the run")]);
    expect(await readFile(join(made, "run", name))).toEqual(before);
  }
  expect((await pack("run", "--output", "run/images/all.zip")).code).toBe(0);
});

it("[PACK-2] a write that fails is exit 9 and leaves no file", async () => {
  await mkdir(join(made, "full"));
  const script = `trap "" XFSZ; ulimit -f 100; "$0" pack run --output full/run.zip`;
  const failed = await run("bash", ["-c", script, BIN], { cwd: made }).catch((error) => error);
  expect(failed).toMatchObject({ code: 9, stderr: expect.stringContaining("Could not save") });
  expect(await readdir(join(made, "full"))).toEqual([]);
  await rm(join(made, "full"), { recursive: true });
});
