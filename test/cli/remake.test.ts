import { EventEmitter } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";

async function chunksOf(stream: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** An upstream of type `openai` that counts what it is asked, and makes another picture each time. */
async function startUpstream() {
  const fake = {
    url: "",
    requests: [] as string[],
    bodies: [] as string[],
    failing: null as RegExp | null,
    /** These requests are taken, and their answers are lost. */
    losing: null as RegExp | null,
    onPost: null as (() => void) | null,
  };
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await chunksOf(request)).toString("latin1");
    fake.requests.push(`${request.method} ${request.url}`);
    if (request.method === "POST") fake.bodies.push(body);
    if (request.method === "POST") fake.onPost?.();
    response.setHeader("content-type", "application/json");
    if (fake.losing?.test(body)) {
      response.writeHead(200).write("{");
      response.socket?.destroySoon();
      return;
    }
    if (fake.failing?.test(body)) {
      response.statusCode = 400;
      response.end(JSON.stringify({ error: { message: "Not this one.", code: "invalid_request" } }));
      return;
    }
    const colour = { r: fake.requests.length, g: 0, b: 0 };
    const picture = sharp({ create: { width: 64, height: 64, channels: 3, background: colour } });
    const b64_json = (await picture.png().toBuffer()).toString("base64");
    response.end(JSON.stringify({ data: request.method === "GET" ? [] : [{ b64_json }] }));
  });
  fake.url = `${await listening(server)}/v1`;
  return fake;
}

/** A finished run of four prompts, one of them with two images, at an upstream that counts and bills 0.10 for each image. */
async function finishedRun() {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GITHUB_ACTIONS", "");
  vi.stubEnv("LAB_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  const upstream = await startUpstream();
  const own = { name: "lab", type: "openai", baseUrl: upstream.url, apiKeyEnv: "LAB_KEY", concurrency: 1 };
  const providers = [{ ...own, models: ["m", "n"] }];
  const models = [
    { id: "m", prices: { "1K": 0.1 }, maxReferenceImages: 4 },
    { id: "n", prices: { "1K": 0.3 } },
  ];
  const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers, models, groups }));
  const prompts = [
    { custom_id: "fox", prompt: "a fox" },
    { custom_id: "owl", prompt: "an owl", output_count: 2 },
    { custom_id: "icon-a", prompt: "an anchor" },
    { custom_id: "icon-b", prompt: "a bell" },
  ];
  writeFileSync(join(cwd, "p.jsonl"), prompts.map((line) => JSON.stringify(line)).join("\n"));
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const made = await run("submit", "p.jsonl", "-o", "out", "--model", "m", "--max-cost", "1");
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("5 of 5 images")]);
  const path = (name: string) => join(cwd, "out", name);
  const read = (name: string) => readFileSync(path(name));
  const linesOf = (name: string) =>
    read(name)
      .toString()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  const paid = () => upstream.requests.filter((request) => request.startsWith("POST")).length;
  const resultOf = (id: string) => linesOf("results.jsonl").find((line) => line.custom_id === id);
  return { cwd, upstream, run, paid, path, read, linesOf, resultOf, prompts };
}

it("a seed for a model without seeds is told to be left out, and nothing is paid", async () => {
  const { run, paid } = await finishedRun();
  const before = paid();
  const { code, stderr } = await run("retry", "out", "--only", "fox", "--seed", "7", "--max-cost", "1");
  expect([code, paid()]).toEqual([2, before]);
  expect(stderr).toMatch(/leave out --seed:\nnext: imgbatch retry out --only fox --max-cost 1 /);
});

it("[REMAKE-1] pictures that nobody wants are made again with consent, and the earlier ones stay with their results", async () => {
  const { run, paid, read, path, linesOf, resultOf } = await finishedRun();
  const before = paid();
  const [fox, owl] = [read("images/fox.png"), read("images/owl_02.png")];
  const again = ["retry", "out", "--only", "fox,owl_02", "--only", "icon-*"];
  const dry = await run(...again, "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ dry_run: true, image_count: 4, estimated_cost: 0.4 });
  const without = await run(...again);
  expect([without.code, without.stderr]).toEqual([8, expect.stringContaining("--max-cost 0.4")]);
  expect((await run(...again, "--max-cost", "0.3")).code).toBe(8);
  expect(paid()).toBe(before);

  const made = await run(...again, "--max-cost", "0.4", "--json");
  expect(made.code).toBe(0);
  expect(made.json()).toMatchObject({ actual_cost: 0.9, paid_now: 0.4, counts: { success: 5, total: 5 } });
  expect(paid()).toBe(before + 4);
  expect(read("images/fox.png").equals(fox)).toBe(false);
  expect(read("versions/fox.png").equals(fox)).toBe(true);
  expect(read("versions/owl_02.png").equals(owl)).toBe(true);
  expect(resultOf("fox").files[0].path).toBe("images/fox.png");
  expect(linesOf("versions/results.jsonl")[0]).toMatchObject({
    custom_id: "fox",
    prompt: "a fox",
    files: [{ path: "versions/fox.png", sha256: sha256Hex(fox) }],
  });
  expect(readdirSync(path("images"))).toHaveLength(5);
  const usage = await run("admin", "usage", "--json");
  expect(JSON.stringify(usage.json())).toContain("0.9");

  // Nothing undoes it, and nothing is paid again.
  const after = read("images/fox.png");
  for (const args of [
    ["retry", "out"],
    ["submit", "p.jsonl", "-o", "out"],
    ["submit", "p.jsonl", "-o", "out", "--update"],
    ["download", "out"],
  ])
    expect((await run(...args)).code).toBe(0);
  expect([paid(), read("images/fox.png").equals(after)]).toEqual([before + 4, true]);

  // Once it has ended, the same command makes others.
  expect((await run(...again, "--max-cost", "0.4")).code).toBe(0);
  expect(paid()).toBe(before + 8);
  expect(readdirSync(path("versions")).filter((name) => name.startsWith("fox"))).toHaveLength(2);
  const items = (await run("items", "out", "--json")).json().items as {
    custom_id: string;
    batch_id: string;
  }[];
  expect(items.find((item) => item.custom_id === "fox")?.batch_id).toBe(resultOf("fox").batch_id);
});

it("[REMAKE-2] a review decides what is made again, once, and its words change the picture", async () => {
  const { upstream, run, paid, read, resultOf, linesOf } = await finishedRun();
  const before = paid();
  const fox = read("images/fox.png");
  expect((await run("retry", "out", "--rejected")).stderr).toContain("no picture of out is wanted again");
  await run("review", "out", "--again", "fox=a hat", "--again", "owl_01", "--keep", "icon-*");
  const wordless = await run("retry", "out", "--rejected", "--dry-run");
  expect(wordless.stderr).toContain("the words of the review about fox are left out: only --edit sends them");
  const speechless = await run("retry", "out", "--rejected", "--edit");
  expect([speechless.code, speechless.stderr]).toEqual([
    2,
    expect.stringMatching(
      /nothing says what should change in owl_01.*\n.*\nnext: imgbatch review out --again 'owl_01=what should/,
    ),
  ]);
  const decided = await run("review", "out", "--keep", "owl_01");
  expect(decided.stderr).toContain("next: imgbatch retry out --rejected --edit --");
  const made = await run("retry", "out", "--rejected", "--edit", "--max-cost", "0.1");
  expect([made.code, paid()]).toEqual([0, before + 1]);
  expect(upstream.bodies.at(-1)).toContain("a hat");
  expect(resultOf("fox")).toMatchObject({
    prompt: "a fox",
    again: { edit: "a hat", picture: sha256Hex(fox) },
  });
  expect(read(`references/${sha256Hex(fox)}`).equals(fox)).toBe(true);
  // The verdict was about the picture of then.
  expect((await run("retry", "out", "--rejected", "--edit", "--max-cost", "0.1")).code).toBe(0);
  expect(paid()).toBe(before + 1);
  expect((await run("review", "out", "--json")).json()).toMatchObject({
    counts: { keep: 3, again: 0, drop: 0, undecided: 1 },
  });
  expect(linesOf("review.jsonl")).toHaveLength(5);
});

it("[REMAKE-1] a picture that cannot be made again stays, and the command says so", async () => {
  const { upstream, run, read, path, resultOf } = await finishedRun();
  const fox = read("images/fox.png");
  upstream.failing = /fox/;
  const failed = await run("retry", "out", "--only", "fox", "--max-cost", "0.1", "--json");
  expect(failed.code).toBe(4);
  expect(failed.json().error?.message).toContain("1 image was not made again: fox: ");
  expect([read("images/fox.png").equals(fox), existsSync(path("versions"))]).toEqual([true, false]);
  expect(resultOf("fox").notes).toContainEqual(expect.stringMatching(/^not made again: /));
  upstream.failing = null;
  expect((await run("retry", "out", "--only", "fox", "--max-cost", "0.1")).code).toBe(0);
  expect(read("versions/fox.png").equals(fox)).toBe(true);
  expect(resultOf("fox").notes).not.toContainEqual(expect.stringMatching(/^not made again: /));
});

it("[REMAKE-1] a lost answer is said with what it may cost, and only that picture is asked for again", async () => {
  const { upstream, run, paid, read, resultOf } = await finishedRun();
  const before = paid();
  const fox = read("images/fox.png");
  upstream.losing = /a fox/;
  const lost = await run("retry", "out", "--only", "fox,owl_02,icon-a", "--max-cost", "0.3");
  expect([lost.code, paid()]).toEqual([4, before + 3]);
  expect(lost.stderr).toContain("submitting 3 images again");
  expect(lost.stderr).toContain("the answers for 1 image were lost: at most $0.10 may be billed for it");
  expect(lost.stderr).toMatch(/next: imgbatch retry out --only fox --/);
  expect(read("images/fox.png").equals(fox)).toBe(true);
  upstream.losing = null;
  // Now the pictures are of two batches, and so are the new ones.
  const both = await run("retry", "out", "--only", "fox,icon-a", "--max-cost", "0.2");
  expect([both.code, paid()]).toEqual([0, before + 5]);
  expect(both.stderr).toContain("submitting 2 images again");
  expect(both.stderr).toContain("1 image may be paid twice, see out/results.jsonl");
  const marked = {
    may_be_billed: 0.1,
    notes: expect.arrayContaining([expect.stringMatching(/^may be paid twice/)]),
  };
  expect(resultOf("fox")).toMatchObject(marked);
  // Whatever is looked at or made again later, the lost answer is said, and counted once.
  expect((await run("submit", "p.jsonl", "-o", "out")).code).toBe(0);
  expect((await run("retry", "out", "--only", "fox", "--max-cost", "0.1")).code).toBe(0);
  expect(resultOf("fox")).toMatchObject(marked);
});

it("[REMAKE-1] another model is asked when it is named, and its price is said", async () => {
  const { upstream, run, resultOf } = await finishedRun();
  const dry = await run("retry", "out", "--only", "fox", "--model", "n", "--dry-run", "--json");
  expect(dry.json()).toMatchObject({ estimated_cost: 0.3, prices: [{ model: "n" }] });
  const made = await run("retry", "out", "--only", "fox", "--model", "n", "--max-cost", "0.3", "--json");
  expect(made.json()).toMatchObject({ paid_now: 0.3, actual_cost: 0.8 });
  expect(upstream.bodies.at(-1)).toContain('"model":"n"');
  expect(resultOf("fox")).toMatchObject({ model: "n", again: { model: "n" } });
  const wrong = await run("retry", "out", "--only", "fox", "--model", "x");
  expect(wrong.stderr).toContain('There is no batch model "x"; there is m, n.');
  const edited = await run("retry", "out", "--only", "fox", "--model", "n", "--edit", "a hat");
  expect(edited.stderr).toContain("n takes no reference images");
});

it("[REMAKE-1] a picture that was edited by hand is moved aside as it is, and is the one that words change", async () => {
  const { run, read, path, linesOf } = await finishedRun();
  const mine = await sharp(read("images/fox.png")).negate().png().toBuffer();
  writeFileSync(path("images/fox.png"), mine);
  expect((await run("retry", "out", "--only", "fox", "--edit", "a hat", "--max-cost", "0.1")).code).toBe(0);
  expect(read("versions/fox.png").equals(mine)).toBe(true);
  expect(read(`references/${sha256Hex(mine)}`).equals(mine)).toBe(true);
  const [line] = linesOf("versions/results.jsonl");
  expect(line.notes).toContain("changed by hand since it was made");
  expect(line).toMatchObject({ verified: null, files: [{ sha256: sha256Hex(mine), bytes: mine.length }] });
});

it("[REMAKE-1] a picture that is not here is fetched before words change it, which costs nothing", async () => {
  const { run, paid, path } = await finishedRun();
  const before = paid();
  rmSync(path("images/fox.png"));
  const edit = ["retry", "out", "--only", "fox", "--edit", "a hat", "--max-cost", "0.1"];
  const lacking = await run(...edit);
  expect([lacking.code, lacking.stderr]).toEqual([2, expect.stringContaining("imgbatch download out --")]);
  expect((await run("download", "out")).code).toBe(0);
  expect([(await run(...edit)).code, paid()]).toEqual([0, before + 1]);
});

it("[REV-2] a review without a browser names the nearest id, and writes nothing unless all of it can be", async () => {
  const { run, path, read } = await finishedRun();
  const wrong = await run("review", "out", "--keep", "fox", "--drop", "icon-c");
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("Did you mean icon-a?")]);
  const twice = await run("review", "out", "--keep", "fox", "--drop", "f*");
  expect(twice.stderr).toContain("fox has two verdicts, --keep and --drop");
  expect((await run("review", "out", "--choose", "owl=3")).stderr).toContain("owl has 2 images");
  expect(existsSync(path("review.jsonl"))).toBe(false);
  const sha = sha256Hex(read("images/fox.png"));
  await run("retry", "out", "--only", "fox", "--max-cost", "0.1");
  const chosen = await run(
    "review",
    "out",
    "--choose",
    "owl=2",
    "--choose",
    `fox=${sha.slice(0, 12)}`,
    "--json",
  );
  expect(chosen.json()).toMatchObject({
    decisions: [
      { id: "owl_02", verdict: "keep" },
      { id: "fox", verdict: "keep", version: sha },
      { id: "owl", choose: 2, version: sha256Hex(read("images/owl_02.png")) },
      { id: "fox", choose: sha, version: sha },
    ],
  });
});

it("[REMAKE-1] the same command goes on after Ctrl-C and pays for nothing twice, and another one waits for it", async () => {
  const { cwd, upstream, run, paid, read, path, resultOf } = await finishedRun();
  const before = paid();
  const fox = read("images/fox.png");
  const again = ["retry", "out", "--only", "fox,icon-*"];
  const signals = new EventEmitter();
  upstream.onPost = () => {
    upstream.onPost = null;
    signals.emit("SIGINT", "SIGINT");
  };
  const flags = ["--max-cost", "0.3", "--config", "c.json", "--data", join(cwd, "data")];
  const stopped = await runInProcess([...again, ...flags], { cwd, signals });
  expect(stopped.code).toBe(130);

  const other = await run("retry", "out", "--only", "owl", "--max-cost", "1");
  expect([other.code, other.stderr]).toEqual([
    6,
    expect.stringMatching(
      /go on with it first:\nnext: imgbatch retry out --only 'fox,icon-\*' --data .* --config c.json/,
    ),
  ]);
  const rest = await run(...again, "--json");
  expect(rest.json()).toMatchObject({ actual_cost: 0.8, counts: { success: 5 } });
  expect([rest.code, paid()]).toEqual([0, before + 3]);
  expect([read("versions/fox.png").equals(fox), existsSync(path("images/fox.png"))]).toEqual([true, true]);
  expect(resultOf("fox").batch_id).toBe(resultOf("icon-a").batch_id);

  // A kill after all was made, before the command could say so.
  const state = read("imgbatch.json").toString();
  expect(state).toContain('"told_at": ');
  writeFileSync(path("imgbatch.json"), state.replace(/,\s*"told_at": "[^"]+"/g, ""));
  expect((await run(...again, "--max-cost", "0.3")).code).toBe(0);
  expect(paid()).toBe(before + 3);
  expect((await run(...again, "--max-cost", "0.3")).code).toBe(0);
  expect(paid()).toBe(before + 6);
});

it("[REMAKE-1] the same command, typed twice at once, pays once", async () => {
  const { run, paid, resultOf } = await finishedRun();
  const before = paid();
  const typed = ["retry", "out", "--only", "fox", "--max-cost", "1"] as const;
  const both = await Promise.all([run(...typed), run(...typed)]);
  expect(both.map(({ code }) => code)).toEqual([0, 0]);
  expect(paid()).toBe(before + 1);
  const others = both.filter(({ stderr }) => stderr.includes("run it again for others"));
  expect(others).toHaveLength(1);
  expect(resultOf("fox").status).toBe("success");
  expect((await run(...typed)).code).toBe(0);
  expect(paid()).toBe(before + 2);
});

it("[REMAKE-1] a prompt that was edited since is not paid for as it was", async () => {
  const { cwd, run, paid, prompts } = await finishedRun();
  const before = paid();
  const edited = prompts.with(0, { custom_id: "fox", prompt: "a blue fox" });
  writeFileSync(join(cwd, "p.jsonl"), edited.map((line) => JSON.stringify(line)).join("\n"));
  const refused = await run("retry", "out", "--only", "fox,icon-a", "--max-cost", "1");
  expect([refused.code, refused.stderr]).toEqual([
    6,
    expect.stringContaining("The prompt of fox was edited in p.jsonl since"),
  ]);
  expect(refused.stderr).toContain("--update");
  expect(paid()).toBe(before);
  expect((await run("retry", "out", "--only", "icon-a", "--max-cost", "1")).code).toBe(0);
});
