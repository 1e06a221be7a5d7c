import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { type FakeUpstream, startFakeUpstream } from "../support/openai-upstream.ts";
import { tempDir } from "../support/temp-dir.ts";

const line = (custom_id: string, prompt = `a ${custom_id}`, more = {}) => ({
  custom_id,
  prompt,
  file: `public/${custom_id}.webp`,
  pixels: "64x64",
  ...more,
});
const PETS = [line("cat"), line("dog"), line("owl")];

/** A clone of a repository on a machine with a data directory of its own. Without `from`, the repository begins. */
async function clone(upstream: FakeUpstream, from?: string) {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GITHUB_ACTIONS", "");
  vi.stubEnv("OPENAI_API_KEY", "a-key-0123456789");
  const top = await tempDir();
  const cwd = join(top, "site");
  const git = (...args: string[]) =>
    execFileSync("git", args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  const path = (name: string) => join(cwd, name);
  const write = (lines: readonly object[]) =>
    writeFileSync(path("pets.jsonl"), lines.map((each) => `${JSON.stringify(each)}\n`).join(""));
  if (from === undefined) {
    mkdirSync(cwd);
    git("init", "-q", "-b", "main");
    writeFileSync(path(".gitignore"), "pets-images\n");
    writeFileSync(
      path("c.json"),
      JSON.stringify({ providers: [{ preset: "openai", baseUrl: upstream.url }] }),
    );
    write(PETS);
  } else execFileSync("git", ["clone", "-q", from, cwd], { stdio: "ignore" });
  git("config", "user.name", "x");
  git("config", "user.email", "x@example.com");
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(top, "data")], { cwd });
  return {
    cwd,
    path,
    write,
    git,
    run,
    commit: () => {
      git("add", "-A");
      git("commit", "-qm", "x");
    },
    read: (name: string) => readFileSync(path(name)),
    /** Without a way to a service: no key and no upstream that answers. */
    submit: (...args: string[]) => run("submit", "pets.jsonl", "--max-cost", "1", "--json", ...args),
    check: async (...args: string[]) => {
      const { code, json } = await runInProcess(["check", "pets.jsonl", "--json", ...args], { cwd });
      const { counts, lines, missing_cost } = json() as unknown as {
        counts: Record<string, number>;
        lines: { id: string; state: string; cost: number }[];
        missing_cost: number;
      };
      const wrong = lines.filter(({ state }) => state !== "ok");
      return { code, counts, wrong: wrong.map(({ id, state, cost }) => [id, state, cost]), missing_cost };
    },
  };
}

const posts = ({ requests }: FakeUpstream) => requests.filter((each) => each.startsWith("POST")).length;

/** A repository whose pictures are made and committed. */
async function made() {
  const upstream = await startFakeUpstream();
  upstream.picture = (number) =>
    sharp({ create: { width: 96, height: 96, channels: 3, background: { r: number * 20, g: 60, b: 90 } } })
      .png()
      .toBuffer();
  const one = await clone(upstream);
  const { code, stderr } = await one.submit();
  expect([code, stderr]).toEqual([0, expect.stringContaining("3 files made")]);
  one.commit();
  expect(one.git("ls-files").split("\n")).toEqual(
    expect.arrayContaining(["pets.lock", "public/cat.webp", "public/dog.webp", "public/owl.webp"]),
  );
  return { upstream, one, asked: upstream.requests.length };
}

it("[LOCK-4] a fresh clone is done: submit asks nobody, with no key, and needs no directory of the run", async () => {
  const { upstream, one, asked } = await made();
  const two = await clone(upstream, one.cwd);
  vi.stubEnv("OPENAI_API_KEY", undefined);
  const here = await two.submit();
  expect([here.code, here.json().counts]).toEqual([0, expect.objectContaining({ total: 3, success: 3 })]);
  expect(here.stderr).toContain("nothing was asked or paid");
  expect(await two.check()).toMatchObject({ code: 0, counts: { ok: 3 } });
  expect([existsSync(two.path("pets-images")), upstream.requests.length]).toEqual([false, asked]);
  expect(two.git("status", "--porcelain")).toBe("");
});

it("[LOCK-4] in a fresh clone a new prompt is made alone, and a changed one with --update at the price that was said", async () => {
  const { upstream, one } = await made();
  const two = await clone(upstream, one.cwd);
  const before = two.read("pets.lock").toString().split("\n");
  two.write([line("fox"), ...PETS]);
  expect((await two.submit()).code).toBe(0);
  expect(posts(upstream)).toBe(4);
  two.write([line("fox"), line("cat", "a big cat"), line("dog"), line("owl")]);
  expect(await two.check()).toMatchObject({ code: 4, wrong: [["cat", "stale", 0.053]], missing_cost: 0.053 });
  const refused = await two.submit();
  expect([refused.code, refused.json().error?.code]).toEqual([6, "PROMPTS_CHANGED"]);
  expect(refused.stderr).toContain("(about $0.06)");
  expect(posts(upstream)).toBe(4);
  expect((await two.submit("--update")).code).toBe(0);
  expect(posts(upstream)).toBe(5);
  expect(await two.check()).toMatchObject({ code: 0, counts: { ok: 4 } });
  // The others stay byte for byte.
  const after = two.read("pets.lock").toString().split("\n");
  expect(after.slice(3, 5)).toEqual(before.slice(2, 4));
  two.commit();
  // Back on the first machine, which has another picture of the cat in its run.
  one.git("pull", "-q", two.cwd, "main");
  expect((await one.submit()).code).toBe(0);
  expect([posts(upstream), one.git("status", "--porcelain")]).toEqual([5, ""]);
});

it("[LOCK-4] other pixels cost nothing where the originals are, and elsewhere need --update with the price", async () => {
  const { upstream, one } = await made();
  const two = await clone(upstream, one.cwd);
  const smaller = [line("cat", "a cat", { pixels: "32x32" }), line("dog"), line("owl")];
  for (const each of [one, two]) each.write(smaller);
  expect(await one.check()).toMatchObject({ code: 4, wrong: [["cat", "stale", 0]], missing_cost: 0 });
  expect((await one.submit()).code).toBe(0);
  expect(posts(upstream)).toBe(3);
  expect(await one.check()).toMatchObject({ code: 0 });
  const refused = await two.submit();
  expect([refused.code, refused.stderr]).toEqual([6, expect.stringContaining("(about $0.06)")]);
  expect((await two.submit("--update")).code).toBe(0);
  expect(posts(upstream)).toBe(4);
});

it("[LOCK-4] after --update without a line, its entry and its file are gone, unless the file was changed by hand", async () => {
  const { upstream, one } = await made();
  const two = await clone(upstream, one.cwd);
  for (const each of [one, two]) {
    each.write([line("cat")]);
    writeFileSync(each.path("public/owl.webp"), "mine");
    expect(await each.check()).toMatchObject({ counts: { ok: 1, unused: 2 } });
    expect((await each.submit("--update")).code).toBe(0);
    expect(await each.check()).toMatchObject({ code: 0, counts: { ok: 1, unused: 0 } });
    expect([existsSync(each.path("public/dog.webp")), each.read("public/owl.webp").toString()]).toEqual([
      false,
      "mine",
    ]);
  }
  expect(posts(upstream)).toBe(3);
});

it("[LOCK-4] a missing file and one that was changed by hand are told, and are free where the original is", async () => {
  const { upstream, one } = await made();
  const cat = one.read("public/cat.webp");
  rmSync(one.path("public/cat.webp"));
  writeFileSync(one.path("public/dog.webp"), "mine");
  expect(await one.check()).toMatchObject({
    code: 4,
    wrong: [
      ["cat", "missing", 0.053],
      ["dog", "altered", 0],
    ],
  });
  const refused = await one.submit();
  expect([refused.code, refused.json().error?.code]).toEqual([6, "FILE_EXISTS"]);
  expect((await one.submit("--force")).code).toBe(0);
  expect(one.read("public/cat.webp").equals(cat)).toBe(true);
  expect([posts(upstream), one.git("status", "--porcelain")]).toEqual([3, ""]);
  const two = await clone(upstream, one.cwd);
  rmSync(two.path("public/cat.webp"));
  const lost = await two.submit();
  expect([lost.code, lost.json().error?.code]).toEqual([10, "ORIGINALS_MISSING"]);
  expect((await two.submit("--include-lost")).code).toBe(0);
  expect(posts(upstream)).toBe(4);
  expect(await two.check()).toMatchObject({ code: 0, counts: { ok: 3 } });
});

it("[LOCK-5] two branches that add prompts are merged: both entries are kept, and nothing is paid again", async () => {
  const { upstream, one } = await made();
  const two = await clone(upstream, one.cwd);
  for (const [each, id] of [
    [one, "fox"],
    [two, "hen"],
  ] as const) {
    each.write([...PETS, line(id)]);
    expect((await each.submit()).code).toBe(0);
    each.commit();
  }
  expect(() => one.git("pull", "-q", "--no-rebase", two.cwd, "main")).toThrow();
  one.write([...PETS, line("fox"), line("hen")]);
  expect((await one.submit()).code).toBe(6);
  const merged = one
    .read("pets.lock")
    .toString()
    .replace(/^(<{7}|={7}|>{7}).*\n/gm, "");
  writeFileSync(one.path("pets.lock"), merged);
  expect(await one.check()).toMatchObject({ code: 0, counts: { ok: 5 } });
  one.commit();
  for (const each of [one, await clone(upstream, one.cwd)]) expect((await each.submit()).code).toBe(0);
  expect(posts(upstream)).toBe(5);
});

it("[LOCK-5] what a kill has left out between original, file and lock is made by the same command, for free", async () => {
  const { upstream, one } = await made();
  const [lock, cat] = [one.read("pets.lock"), one.read("public/cat.webp")];
  const right = async () => {
    expect((await one.submit()).code).toBe(0);
    expect([one.read("pets.lock").equals(lock), one.read("public/cat.webp").equals(cat)]).toEqual([
      true,
      true,
    ]);
    expect(posts(upstream)).toBe(3);
  };
  // Before the files and the lock were written; after the files; and with a file that the lock does not have yet.
  rmSync(one.path("pets.lock"));
  rmSync(one.path("public"), { recursive: true });
  await right();
  rmSync(one.path("pets.lock"));
  await right();
  writeFileSync(one.path("pets.lock"), `${lock.toString().split("\n").slice(0, 2).join("\n")}\n`);
  await right();
  // A disk that takes no lock: nothing is half written.
  rmSync(one.path("pets.lock"));
  mkdirSync(one.path("pets.lock"));
  expect((await one.submit()).code).toBe(9);
  rmSync(one.path("pets.lock"), { recursive: true });
  await right();
});

it("[LOCK-5] a picture that retry makes again is in the lock: what made it changes, its key does not", async () => {
  const { upstream, one } = await made();
  const entry = () => JSON.parse(one.read("pets.lock").toString().split("\n")[1] ?? "");
  const before = entry();
  const again = await one.run(
    "retry",
    "pets-images",
    "--only",
    "cat",
    "--edit",
    "with a hat",
    "--max-cost",
    "1",
  );
  expect([again.code, again.stderr]).toEqual([0, expect.any(String)]);
  expect(posts(upstream)).toBe(4);
  expect(entry()).toMatchObject({ id: "cat", key: before.key, made_by: { edit: "with a hat" } });
  expect(await one.check()).toMatchObject({ code: 0, counts: { ok: 3 } });
  one.commit();
  const two = await clone(upstream, one.cwd);
  expect((await two.submit()).code).toBe(0);
  expect(posts(upstream)).toBe(4);
});

it("[LOCK-6] check --fix makes what is free from the originals of the run, and asks nobody", async () => {
  const { upstream, one, asked } = await made();
  rmSync(one.path("public/dog.webp"));
  const wrong = await one.run("check", "pets.jsonl", "--fix", "--compare", "out");
  expect([wrong.code, existsSync(one.path("public/dog.webp"))]).toEqual([2, false]);
  writeFileSync(one.path("public/owl.webp"), "mine");
  one.write([line("cat", "a cat", { pixels: "32x32" }), line("dog"), line("owl"), line("fox")]);
  expect(await one.check("--fix")).toMatchObject({
    code: 4,
    wrong: [
      ["owl", "altered", 0],
      ["fox", "missing", 0.053],
    ],
  });
  expect((await sharp(one.read("public/cat.webp")).metadata()).width).toBe(32);
  expect(one.read("public/owl.webp").toString()).toBe("mine");
  expect(upstream.requests).toHaveLength(asked);
  const two = await clone(upstream, one.cwd);
  rmSync(two.path("public/cat.webp"));
  expect(await two.check("--fix")).toMatchObject({ code: 4, wrong: [["cat", "missing", 0.053]] });
});

it("[LOCK-6] check shows old pictures beside the new ones, in the summary of a job and as a page with the pictures", async () => {
  const { upstream, one } = await made();
  const old = await clone(upstream, one.cwd);
  old.git("checkout", "-q", "--detach");
  const commit = old.git("rev-parse", "HEAD").trim();
  one.write([line("cat", "a big cat"), line("owl"), line("fox")]);
  expect((await one.submit("--update")).code).toBe(0);
  for (const [name, value] of Object.entries({
    GITHUB_ACTIONS: "true",
    GITHUB_STEP_SUMMARY: one.path("summary.md"),
    GITHUB_SERVER_URL: "https://git.example.com",
    GITHUB_REPOSITORY: "an/owner",
    GITHUB_SHA: "a".repeat(40),
    GITHUB_WORKSPACE: one.cwd,
  }))
    vi.stubEnv(name, value);
  const reports = ["--before", old.cwd, "--compare", "out", "--markdown", "check.md", "--junit", "check.xml"];
  expect(await one.check(...reports)).toMatchObject({ code: 0 });
  const summary = one.read("summary.md").toString();
  expect(summary).toContain(`https://git.example.com/an/owner/raw/${commit}/public/cat.webp`);
  expect(summary).toContain(`https://git.example.com/an/owner/raw/${"a".repeat(40)}/public/cat.webp`);
  expect(summary).not.toContain("public/owl.webp");
  expect(one.read("check.md").toString()).toMatch(/\| dog \| <img .*public\/dog\.webp.* \| removed \|/);
  expect(one.read("check.xml").toString()).toContain('tests="3" failures="0"');
  expect(one.read("out/before/public/cat.webp").equals(old.read("public/cat.webp"))).toBe(true);
  expect(one.read("out/now/public/cat.webp").equals(one.read("public/cat.webp"))).toBe(true);
  expect(one.read("out/index.html").toString()).toContain("3 pictures changed");
});

it("[EXPORT-1] export writes the pictures of a run with their prompts as a data set, without what the review has dropped", async () => {
  const { upstream, one, asked } = await made();
  expect((await one.run("review", "pets-images", "--drop", "dog")).code).toBe(0);
  const exported = await one.run("export", "pets-images", "-o", "data", "--layout", "imagefolder", "--json");
  expect([exported.code, exported.stderr]).toEqual([0, expect.any(String)]);
  expect(exported.json()).toMatchObject({ ok: true, directory: "data", images: 2, dropped: 1 });
  const rows = (dir: string) =>
    one
      .read(`${dir}/metadata.jsonl`)
      .toString()
      .trim()
      .split("\n")
      .map((text) => JSON.parse(text));
  expect(rows("data")).toEqual([
    { file_name: "cat.png", text: "a cat" },
    { file_name: "owl.png", text: "a owl" },
  ]);
  expect(one.read("data/cat.png").equals(one.read("pets-images/images/cat.png"))).toBe(true);
  const again = await one.run(
    "export",
    "pets-images",
    "-o",
    "data",
    "--pixels",
    "32x16",
    "--file-format",
    "jpeg",
  );
  expect([again.code, again.stderr]).toEqual([6, expect.stringContaining("data is not empty")]);
  const shaped = ["export", "pets-images", "-o", "small", "--pixels", "32x16", "--file-format", "jpeg"];
  expect((await one.run(...shaped)).code).toBe(0);
  expect(rows("small").map(({ file_name }) => file_name)).toEqual(["cat.jpg", "owl.jpg"]);
  expect(await sharp(one.read("small/cat.jpg")).metadata()).toMatchObject({
    format: "jpeg",
    width: 32,
    height: 16,
  });
  const wrong = await one.run("export", "pets-images", "-o", "x", "--pixels", "huge");
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("--pixels")]);
  rmSync(one.path("pets-images/images/cat.png"));
  expect((await one.run("export", "pets-images", "-o", "y")).code).toBe(7);
  expect([existsSync(one.path("y")), upstream.requests.length]).toEqual([false, asked]);
});
