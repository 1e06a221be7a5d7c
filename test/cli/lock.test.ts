import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { type FakeUpstream, startFakeUpstream } from "../support/openai-upstream.ts";
import { tempDir } from "../support/temp-dir.ts";
import { PNG } from "../support/upstream-adapter.ts";

/** The list price of an image in medium quality. */
const PRICE = 0.053;

interface Machine {
  cwd: string;
  run: (...args: string[]) => ReturnType<typeof runInProcess>;
  submit: (...args: string[]) => ReturnType<typeof runInProcess>;
  read: (name: string) => string;
  write: (name: string, text: string) => void;
}

const line = (custom_id: string, prompt = `a ${custom_id}`, more = {}) =>
  JSON.stringify({ custom_id, prompt, ...more });
const PETS = [line("cat"), line("dog"), line("owl")];

/** A machine with a directory of prompts and a data directory of its own. */
async function machine(upstream: FakeUpstream, from?: Machine): Promise<Machine> {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", "a-key-0123456789");
  const [cwd, data] = [await tempDir(), await tempDir()];
  const write = (name: string, text: string) => writeFileSync(join(cwd, name), text);
  write("c.json", JSON.stringify({ providers: [{ preset: "openai", baseUrl: upstream.url }] }));
  write("pets.jsonl", PETS.join("\n"));
  // What a repository has: the run's directory is not committed.
  if (from !== undefined)
    cpSync(from.cwd, cwd, { recursive: true, filter: (path) => !path.includes("-images") });
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(data, "d")], { cwd });
  return {
    cwd,
    run,
    submit: (...args) => run("submit", "pets.jsonl", "--max-cost", "1", "--json", ...args),
    read: (name) => readFileSync(join(cwd, name), "utf8"),
    write,
  };
}

const posts = ({ requests }: FakeUpstream) => requests.filter((each) => each.startsWith("POST")).length;
const check = async ({ run }: Machine) => {
  const { code, json } = await run("check", "pets.jsonl", "--json");
  return { code, ...(json() as { counts: object; lines: { id: string; state: string; cost: number }[] }) };
};

it("[LOCK-1] submit --lock writes an entry for each prompt, in their order, and check finds them right without asking anybody", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  expect((await one.submit("--lock")).code).toBe(0);
  const [head, ...entries] = one
    .read("pets.lock")
    .trimEnd()
    .split("\n")
    .map((text) => JSON.parse(text));
  expect(head).toMatchObject({ imgbatch_lock: 1, prompts: "pets.jsonl", flags: {} });
  expect(entries.map(({ id }) => id)).toEqual(["cat", "dog", "owl"]);
  expect(entries[0]).toMatchObject({
    originals: [expect.stringMatching(/^[0-9a-f]{64}$/)],
    made_by: { model: "gpt-image-2", provider: "openai" },
    cost: PRICE,
  });
  const asked = upstream.requests.length;
  const found = await check(one);
  expect(found).toMatchObject({ code: 0, ok: true, counts: { ok: 3 }, missing_cost: 0, undecided: 0 });
  const before = one.read("pets.lock");
  expect((await one.submit()).code).toBe(0);
  expect(one.read("pets.lock")).toBe(before);
  expect(upstream.requests).toHaveLength(asked);
});

it("[LOCK-1] check names what is stale, missing and unused with its price; an unchanged entry stays byte for byte", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  await one.submit("--lock");
  const before = one.read("pets.lock").split("\n");
  one.write("pets.jsonl", [line("cat"), line("dog", "a big dog"), line("fox")].join("\n"));
  const found = await check(one);
  expect(found).toMatchObject({
    code: 4,
    ok: false,
    counts: { ok: 1, stale: 1, missing: 1, altered: 0, unused: 1 },
    missing_cost: 2 * PRICE,
  });
  expect(found.lines.map(({ id, state, cost }) => [id, state, cost])).toEqual([
    ["cat", "ok", 0],
    ["dog", "stale", PRICE],
    ["fox", "missing", PRICE],
    ["owl", "unused", 0],
  ]);
  const refused = await one.submit();
  expect(refused).toMatchObject({ code: 6 });
  expect(refused.json().error).toMatchObject({
    code: "PROMPTS_CHANGED",
    details: [expect.stringMatching(/pets\.jsonl:2: dog/)],
  });
  expect(refused.stderr).toContain("(about $0.06)");
  expect(posts(upstream)).toBe(3);
  expect((await one.submit("--update")).code).toBe(0);
  expect(posts(upstream)).toBe(5);
  expect(await check(one)).toMatchObject({ code: 0, counts: { ok: 3, unused: 0 } });
  expect(one.read("pets.lock").split("\n").slice(0, 2)).toEqual(before.slice(0, 2));
});

it("[LOCK-1] a new prompt is made without --update, and only that one", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  await one.submit("--lock");
  one.write("pets.jsonl", [line("fox"), ...PETS].join("\n"));
  expect((await one.submit()).code).toBe(0);
  expect(posts(upstream)).toBe(4);
  expect(await check(one)).toMatchObject({ code: 0, counts: { ok: 4 } });
});

it("[LOCK-1] prompts without ids are found by their content, and an edited one by its place: it needs --update", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  const submit = (...args: string[]) => one.run("submit", "p.txt", "--max-cost", "1", "--json", ...args);
  one.write("p.txt", "a cat\na dog\nan owl\n");
  expect((await submit("--lock")).code).toBe(0);
  one.write("p.txt", "a fox\na cat\na big dog\nan owl\n");
  const { lines } = (await one.run("check", "p.txt", "--json")).json() as { lines: { state: string }[] };
  expect(lines.map(({ state }) => state)).toEqual(["missing", "ok", "stale", "ok"]);
  expect((await submit()).code).toBe(6);
  expect(posts(upstream)).toBe(3);
  expect((await submit("--update")).code).toBe(0);
  expect(posts(upstream)).toBe(5);
  expect((await one.run("check", "p.txt")).code).toBe(0);
});

it("[LOCK-1] the bytes of reference images count, wherever they lie", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  const photo = join(await tempDir(), "photo.png");
  writeFileSync(photo, PNG);
  one.write("pets.jsonl", line("cat", "a cat", { reference_images: [photo] }));
  expect((await one.submit("--lock")).code).toBe(0);
  expect(await check(one)).toMatchObject({ code: 0, counts: { ok: 1 } });
  const other = { create: { width: 8, height: 8, channels: 3 as const, background: "#f00" } };
  writeFileSync(photo, await sharp(other).png().toBuffer());
  expect(await check(one)).toMatchObject({ code: 4, counts: { stale: 1 }, missing_cost: PRICE });
});

it("[LOCK-2] pictures that another machine lacks are exit 10 with the price, and --include-lost makes them", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  await one.submit("--lock");
  const two = await machine(upstream, one);
  expect(existsSync(join(two.cwd, "pets-images"))).toBe(false);
  const lost = await two.submit();
  expect([lost.code, lost.json().error?.code]).toEqual([10, "ORIGINALS_MISSING"]);
  expect(lost.stderr).toMatch(/\(about \$0\.16\):\nnext: .*--include-lost/);
  expect(posts(upstream)).toBe(3);
  expect((await two.submit("--include-lost")).code).toBe(0);
  expect(posts(upstream)).toBe(6);
  // No lock, but the run here: written anew, for free.
  rmSync(join(two.cwd, "pets.lock"));
  expect((await two.submit("--lock")).code).toBe(0);
  expect(await check(two)).toMatchObject({ code: 0, counts: { ok: 3 } });
  expect(posts(upstream)).toBe(6);
});

it.each([
  [
    "the marks of a merge",
    (text: string) => text.replace("\n", "\n<<<<<<< HEAD\n"),
    /pets\.lock:2 has the marks of a merge/,
  ],
  [
    "a later version",
    (text: string) => text.replace('"imgbatch_lock":1', '"imgbatch_lock":2'),
    /version 2 of the format/,
  ],
  [
    "a damaged line",
    (text: string) => text.replace('"key":"', '"key":"x'),
    /pets\.lock:2: key: must be a SHA-256/,
  ],
  [
    "a path that leads out",
    (text: string) =>
      text.replace('"made_by"', `"files":[{"path":"../x.png","sha256":"${"a".repeat(64)}"}],"made_by"`),
    /pets\.lock:2: files: .*leads out/,
  ],
  [
    "another prompt file",
    (text: string) => text.replace("pets.jsonl", "pets.csv"),
    /pets\.lock belongs to pets\.csv/,
  ],
])("[LOCK-3] a lock file with %s is exit 6, and nothing is written or paid", async (_, edit, message) => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  await one.submit("--lock");
  const text = edit(one.read("pets.lock"));
  one.write("pets.lock", text);
  one.write("pets.jsonl", [...PETS, line("fox")].join("\n"));
  const asked = upstream.requests.length;
  for (const args of [["check"], ["submit", "--max-cost", "1", "--update"]]) {
    const { code, stderr } = await one.run(...args, "pets.jsonl");
    expect([args[0], code]).toEqual([args[0], 6]);
    expect(stderr).toMatch(message);
  }
  expect(one.read("pets.lock")).toBe(text);
  expect(upstream.requests).toHaveLength(asked);
});

it("[LOCK-3] the entries of both sides of a merge are taken, the one that fits its prompt first", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  await one.submit("--lock");
  const [head, cat, ...rest] = one.read("pets.lock").split("\n");
  const other = cat?.replace(/"key":"[0-9a-f]{64}"/, `"key":"${"0".repeat(64)}"`);
  one.write("pets.lock", [head, other, cat, head, ...rest].join("\n"));
  expect(await check(one)).toMatchObject({ code: 0, counts: { ok: 3, unused: 0 } });
});

it("[LOCK-1] the flags that shape the pictures are in the lock file: check needs none, and other flags are exit 6", async () => {
  const upstream = await startFakeUpstream();
  const one = await machine(upstream);
  one.write("pets.jsonl", [JSON.stringify({ prompt: "a {{animal}}" })].join("\n"));
  one.write("animals.txt", "cat\ndog\n");
  const flags = ["--var", "animal=@animals.txt", "--aspect-ratio", "3:2"];
  expect((await one.submit("--lock", ...flags)).code).toBe(0);
  expect(JSON.parse(one.read("pets.lock").split("\n")[0] ?? "")).toMatchObject({
    flags: { "--aspect-ratio": "3:2", "--var": ["animal=@animals.txt"] },
  });
  expect(await check(one)).toMatchObject({ code: 0, counts: { ok: 2 } });
  const other = await one.submit("--var", "animal=@animals.txt", "--aspect-ratio", "1:1");
  expect([other.code, other.json().error?.code]).toEqual([6, "PROMPTS_CHANGED"]);
  expect(other.stderr).toMatch(/with the flags of before:\nnext: .*--aspect-ratio 3:2/);
  expect(posts(upstream)).toBe(2);
});

it("[LOCK-1] drawings are no pictures of an upstream: naming one is a change, which needs --update", async () => {
  const upstream = await startFakeUpstream();
  const { cwd, write } = await machine(upstream);
  write("pets.jsonl", line("cat"));
  const submit = (...args: string[]) =>
    runInProcess(["submit", "pets.jsonl", "--lock", "--data", join(cwd, "d"), ...args], { cwd });
  expect((await submit()).code).toBe(0);
  const real = await submit("--upstream", "openai", "--max-cost", "1");
  expect([real.code, real.stderr]).toEqual([6, expect.stringContaining("cat: it is a drawing")]);
  expect((await submit()).code).toBe(0);
});
