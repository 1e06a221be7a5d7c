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

/** A judge: what it says about a picture is in the file `answers.json`, by id. It notes what it was given in `asked.jsonl`. */
const JUDGE = `
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { spawn } from "node:child_process";
const text = readFileSync(0, "utf8");
const picture = JSON.parse(text);
appendFileSync("asked.jsonl", JSON.stringify({ ...picture, key: process.env.LAB_KEY ?? null, isHere: existsSync(picture.path) }) + "\\n");
const { hang, flood, exit, print, ...answer } = JSON.parse(readFileSync("answers.json", "utf8"))[picture.id] ?? { verdict: "keep" };
if (hang) {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "inherit" });
  appendFileSync("hanging.txt", child.pid + "\\n");
  setInterval(() => {}, 1000);
} else if (flood) {
  const more = () => process.stdout.write("x".repeat(65536), more);
  more();
} else if (exit) {
  console.error("the key is a-key-0123456789");
  process.exit(exit);
} else console.log(print ?? JSON.stringify(answer));
`;

async function judgedProject(answers: Record<string, object>) {
  const made = await project();
  const { cwd } = made;
  writeFileSync(join(cwd, "judge.mjs"), JUDGE);
  const answer = (say: Record<string, object>) =>
    writeFileSync(join(cwd, "answers.json"), JSON.stringify(say));
  answer(answers);
  const judge = ["--judge", `'${process.execPath}' judge.mjs`];
  const lines = (name: string) =>
    existsSync(join(cwd, name))
      ? readFileSync(join(cwd, name), "utf8")
          .trim()
          .split("\n")
          .map((line) => JSON.parse(line))
      : [];
  return { ...made, answer, judge, lines };
}

it("[REV-4] a judge gets each picture without a verdict once, and its verdicts are decisions with score and name", async () => {
  const { cwd, submit, run, judge, lines, asked, answer } = await judgedProject({
    fox: { verdict: "keep", score: 0.9 },
    sky: { verdict: "again", score: 0.1, note: "nothing in it" },
    owl: { verdict: "drop" },
  });
  const made = await submit(...judge, "--json");
  expect([made.code, JSON.parse(made.stdout).judged]).toEqual([0, { keep: 1, again: 1, drop: 1, failed: 0 }]);
  expect(made.stderr).toContain("judged by judge.mjs: 1 kept, 1 to make again, 1 dropped\n");
  const given = lines("asked.jsonl").find(({ id }) => id === "sky");
  expect(given).toMatchObject({ prompt: "a plain sky", metadata: {}, options: {}, key: null, isHere: true });
  expect(given.path).toBe(join(cwd, "out/images/sky.png"));
  const decisions = lines("out/review.jsonl");
  expect(decisions.map(({ id }) => id).sort()).toEqual(["fox", "owl", "sky"]);
  expect(decisions.find(({ id }) => id === "sky")).toMatchObject({
    verdict: "again",
    score: 0.1,
    words: "nothing in it",
    judge: "judge.mjs",
    version: given.sha256,
  });
  // A person has the last word, and nothing is judged twice.
  await run("review", "out", "--keep", "owl");
  answer({ fox: { verdict: "drop" }, owl: { verdict: "drop" } });
  const again = await submit(...judge);
  expect([again.code, lines("asked.jsonl").length]).toEqual([0, 3]);
  const review = await run("review", "out", ...judge);
  expect(review.stdout).toContain("2 kept, 1 to make again, 0 dropped");
  expect(asked()).toBe(3);
});

it("[REV-4] the summary names the command that makes again what the judge wants again", async () => {
  const { submit, judge } = await judgedProject({ sky: { verdict: "again", note: "a cloud is missing" } });
  const { stderr } = await submit(...judge);
  expect(stderr).toMatch(/^next: imgbatch retry out --rejected --edit /m);
});

it("[REV-5] a judge that fails, hangs, or prints too much or something else decides nothing, is told, and leaves no process", async () => {
  const { submit, run, judge, lines, answer, read } = await judgedProject({
    fox: { print: "a fox!" },
    sky: { flood: true },
    owl: { exit: 3 },
  });
  const made = await submit(...judge);
  expect(made.code).toBe(0);
  expect(made.stderr).toContain("  fox: the judge judge.mjs must print one JSON object");
  expect(made.stderr).toContain("  sky: the judge judge.mjs printed too much and was ended\n");
  expect(made.stderr).toMatch(/^ {2}owl: the judge judge.mjs ended with exit code 3: the key is (?!a-key)/m);
  expect(made.stderr).toContain(
    "0 kept, 0 to make again, 0 dropped, 3 pictures undecided, because it failed",
  );
  answer({ fox: { verdict: "maybe" }, sky: { verdict: "keep", score: 7 }, owl: { exit: 1 } });
  const again = await submit(...judge);
  expect(again.stderr).toContain("gave no valid answer: verdict must be keep, again, drop");
  expect(again.stderr).toContain("gave no valid answer: score must be from 0 to 1");
  expect([again.code, lines("out/review.jsonl")]).toEqual([0, []]);
  await run("review", "out", "--keep", "sky,owl");
  answer({ fox: { hang: true } });
  const late = await submit(...judge, "--judge-timeout", "6s");
  expect(late.code).toBe(0);
  expect(late.stderr).toMatch(/^ {2}fox: the judge judge.mjs said nothing within 6\s?s and was ended$/m);
  expect(lines("out/review.jsonl")).toHaveLength(2);
  const pid = Number(read("hanging.txt"));
  expect(() => process.kill(pid, 0)).toThrow("ESRCH");
});

it("[REV-5] a judge that cannot be started is an error before anything is sent", async () => {
  const { submit, asked } = await judgedProject({});
  for (const [words, message] of [
    [["--judge", "no-such-judge"], "--judge: no-such-judge: no such command. Nothing was sent."],
    [["--judge", "./judge.mjs"], "--judge: ./judge.mjs: cannot be run (no permission). Nothing was sent."],
    [["--judge", "node 'judge"], "--judge: a quote or a backslash has no end."],
    [["--best"], "--best: name the program that judges with --judge."],
  ] as const) {
    const { code, stderr } = await submit(...words);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
  }
  expect(asked()).toBe(0);
});

it("[REV-4] --best chooses the image with the highest score of a prompt, of those that the judge keeps", async () => {
  const { cwd, submit, run, judge, lines } = await judgedProject({
    fox: { verdict: "keep", score: 0.4 },
    fox_02: { verdict: "keep", score: 0.7 },
    fox_03: { verdict: "drop", score: 0.9 },
    owl: { verdict: "again", score: 0.4 },
    owl_02: { verdict: "again", score: 0.3 },
  });
  const prompts = [
    { custom_id: "fox", prompt: "a fox", output_count: 3 },
    { custom_id: "owl", prompt: "an owl", output_count: 2 },
  ];
  writeFileSync(join(cwd, "p.jsonl"), prompts.map((line) => JSON.stringify(line)).join("\n"));
  const made = await submit(...judge, "--best");
  expect(made.code).toBe(0);
  const choices = lines("out/review.jsonl").filter(({ choose }) => choose !== undefined);
  expect(choices).toMatchObject([{ id: "fox", choose: 2, judge: "judge.mjs" }]);
  expect((await run("review", "out")).stdout).toContain("1 kept, 1 to make again, 0 dropped, 0 undecided");
  expect((await submit(...judge, "--best")).code).toBe(0);
  expect(lines("asked.jsonl")).toHaveLength(5);
});
