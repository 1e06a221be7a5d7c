import { EventEmitter } from "node:events";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { gate } from "../support/gate.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { openBeside } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import type { FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import { OPENAI_KEY } from "../support/upstreams/openai.ts";
import { startFake } from "../upstreams/services.ts";

/*
 * A run goes on only when a command names it, whatever ended the command before. The upstream counts every request that
 * comes, and keeps its own bill.
 */

const PRICE_USD = 0.05;
const AT_ONCE = 4;

let cwd: string;
let upstream: FakeUpstream;
/** Lets the requests end that wait at the upstream. */
let letGo: () => void;
beforeEach(async () => {
  cwd = await tempDir();
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("OPENAI_API_KEY", OPENAI_KEY);
  const { fake, entry, model } = await startFake("openai");
  upstream = fake;
  const models = [{ id: model, sizes: ["1K"], prices: { "1K": PRICE_USD } }];
  const provider = { name: "shop", ...entry, models: [model], concurrency: AT_ONCE };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ models, providers: [provider] }));
  letGo = () => {};
  return () => upstream.close();
});

const prompts = (name: string, lines: readonly string[]) =>
  writeFileSync(join(cwd, name), lines.map((prompt) => `${JSON.stringify({ prompt })}\n`).join(""));
const many = (count: number, what = "picture") => Array.from({ length: count }, (_, i) => `${what} ${i + 1}`);

const where = () => ["--config", "imgbatch.config.json", "--data", join(cwd, "data")];
const run = (...args: string[]) => runInProcess([...args, ...where()], { cwd });

const earlierPictures = (dir: string) =>
  readdirSync(join(cwd, dir, "versions")).filter((name) => name.endsWith(".png"));

const requests = () => upstream.requests.filter(({ kind }) => kind === "images").length;

/** Answers `count` requests; those that come later wait until `letGo`. */
function answerOnly(count: number): { waiting: Promise<void> } {
  const [full, open] = [gate(), gate()];
  let came = 0;
  letGo = () => open.open();
  upstream.setBehaviour(async (exchange) => {
    came++;
    const isLate = came > count;
    if (came === count + AT_ONCE) full.open();
    if (isLate) await open.promise;
    exchange.send(await exchange.make());
  });
  return { waiting: full.promise };
}

/** Runs a command, and interrupts it when the upstream has answered `count` requests and holds as many as it may. */
async function interruptedAfter(count: number, ...args: string[]) {
  const { waiting } = answerOnly(count);
  const signals = new EventEmitter();
  const running = runInProcess([...args, ...where()], { cwd, signals });
  await Promise.race([waiting, running.then(({ stderr }) => expect(stderr).toBe("still running"))]);
  signals.emit("SIGINT", "SIGINT");
  // A stop waits for requests that are paid.
  letGo();
  const result = await running;
  upstream.setBehaviour(null);
  return result;
}

const SUBMIT = ["submit", "forty.jsonl", "-o", "forty", "--max-cost", "9"];

async function stoppedRun() {
  prompts("forty.jsonl", many(40));
  const { code, stderr } = await interruptedAfter(8, ...SUBMIT);
  expect(code).toBe(130);
  const before = requests();
  expect(before).toBeLessThan(20);
  return { before, stderr };
}

async function billed() {
  const { stores } = await openBeside(join(cwd, "data"));
  const calls = await stores.read.providerCalls.list({});
  return calls.reduce((sum, { requests }) => sum + requests, 0);
}

describe("a run that was stopped", () => {
  it("[EMBED-5] stays stopped while another run is made, and goes on when its own command names it", async () => {
    const { before } = await stoppedRun();
    prompts("one.jsonl", ["one more"]);
    const one = await run("submit", "one.jsonl", "-o", "one", "--max-cost", "0.05");
    expect([one.code, requests()]).toEqual([0, before + 1]);
    const status = await run("status", "forty");
    expect(status.stdout).toMatch(
      /stopped; go on with imgbatch wait imgbatch_\w+ --data \S+ --config \S+, or give up with imgbatch cancel/,
    );
    expect((await run("generate", "a fox", "-o", "fox.png", "--max-cost", "0.05")).code).toBe(0);
    expect(requests()).toBe(before + 2);
    const watched = await run("watch");
    const advice = /stopped; go on with imgbatch wait imgbatch_\w+ --data /;
    expect([watched.code, watched.stdout]).toEqual([0, expect.stringMatching(advice)]);
    expect((await run("list")).stderr).toContain("is stopped; go on with imgbatch wait imgbatch_");
    expect(requests()).toBe(before + 2);
    expect((await run(...SUBMIT)).code).toBe(0);
    expect(requests()).toBe(42);
    expect(upstream.billed()).toBe(42);
    expect(await billed()).toBe(42);
  });

  it("does not go on above --max-cost, also where the answer about its batch was lost", async () => {
    const { before } = await stoppedRun();
    const low = [...SUBMIT.slice(0, -1), "0.30"];
    const path = join(cwd, "forty", "imgbatch.json");
    const state = JSON.parse(readFileSync(path, "utf8"));
    Object.assign(state.batches[0], { id: null, state: "unknown", status: null });
    for (const isLost of [false, true]) {
      if (isLost) writeFileSync(path, JSON.stringify(state));
      const refused = await run(...low);
      const what = `${40 - before} images would cost \\$[\\d.]+, more than --max-cost \\$0\\.30`;
      expect([refused.code, refused.stderr]).toEqual([8, expect.stringMatching(what)]);
      expect((await run(...low, "--dry-run")).code).toBe(8);
    }
    expect(requests()).toBe(before);
    expect((await run(...SUBMIT)).code).toBe(0);
    expect(requests()).toBe(40);
  });

  it("stays stopped after a kill, too", async () => {
    prompts("forty.jsonl", many(40));
    const { waiting } = answerOnly(8);
    const env = { ...cleanEnvironment(), OPENAI_API_KEY: OPENAI_KEY };
    const running = startNode([BIN, ...SUBMIT, ...where()], { cwd, env });
    await waiting;
    running.child.kill("SIGKILL");
    await running.exited;
    letGo();
    upstream.setBehaviour(null);
    const before = requests();
    prompts("one.jsonl", ["one more"]);
    expect((await run("submit", "one.jsonl", "-o", "one", "--max-cost", "0.05")).code).toBe(0);
    expect(requests()).toBe(before + 1);
  });
});

describe("an update of a run that was stopped", () => {
  it("[UPDATE-6] costs what its dry run says: what it replaces is not begun any more, and nothing is paid twice", async () => {
    const { before } = await stoppedRun();
    const lines = many(40).map((prompt, i) => (i % 2 === 0 ? prompt : `${prompt}, corrected`));
    prompts("forty.jsonl", lines);
    const priced = await run(...SUBMIT, "--update", "--dry-run", "--json");
    const { image_count: count, estimated_cost: usd } = priced.json() as unknown as {
      image_count: number;
      estimated_cost: number;
    };
    const refused = await run(
      "submit",
      "forty.jsonl",
      "-o",
      "forty",
      "--update",
      "--max-cost",
      String(usd - 0.01),
    );
    expect([refused.code, requests()]).toEqual([8, before]);
    const updated = await run(...SUBMIT, "--update");
    expect([updated.code, requests() - before]).toEqual([0, count]);
    const results = readFileSync(join(cwd, "forty/results.jsonl"), "utf8").trim().split("\n");
    expect(results.filter((line) => JSON.parse(line).status === "success")).toHaveLength(40);
    // Each prompt of the file was paid once; what was paid before the correction is set aside.
    expect(lines.map((prompt) => upstream.asked(prompt))).toEqual(lines.map(() => 1));
    expect(earlierPictures("forty")).toHaveLength(upstream.billed() - 40);
    expect(await billed()).toBe(upstream.billed());
  });
});

it("an update sets aside what a replaced batch has made, while another batch goes on", async () => {
  prompts("forty.jsonl", many(40));
  const split = [...SUBMIT, "--max-batch", "20"];
  expect((await interruptedAfter(8, ...split)).code).toBe(130);
  const made = many(20).filter((prompt) => upstream.asked(prompt) > 0);
  expect(made.length).toBeGreaterThan(0);
  prompts(
    "forty.jsonl",
    many(40).map((prompt, i) => (i < 20 ? `${prompt}, corrected` : prompt)),
  );
  expect((await run(...split, "--update")).code).toBe(0);
  expect(earlierPictures("forty")).toHaveLength(made.length);
  expect(upstream.billed()).toBe(40 + made.length);
});

it("an update sets aside a picture that was in flight at the stop, and that nobody has fetched", async () => {
  const four = ["submit", "four.jsonl", "-o", "four", "--max-cost", "9"];
  prompts("four.jsonl", many(AT_ONCE));
  expect((await interruptedAfter(0, ...four)).code).toBe(130);
  expect(requests()).toBe(AT_ONCE);
  prompts("four.jsonl", ["another picture", ...many(AT_ONCE).slice(1)]);
  expect((await run(...four, "--update")).code).toBe(0);
  expect(requests()).toBe(AT_ONCE + 1);
  expect(earlierPictures("four")).toHaveLength(1);
  expect(readdirSync(join(cwd, "four/images"))).toHaveLength(AT_ONCE);
});

describe("an update of a run whose batch was never answered for", () => {
  it.each([
    ["was made", (key: string) => key],
    ["was never made", (key: string) => `${key}-other`],
  ])("finds a batch that %s by its key, and sends nothing for what was removed", async (_, keyOf) => {
    const { before } = await stoppedRun();
    const path = join(cwd, "forty/imgbatch.json");
    const state = JSON.parse(readFileSync(path, "utf8"));
    const [batch] = state.batches;
    Object.assign(batch, { id: null, status: null, state: "unknown" });
    batch.idempotency_key = keyOf(batch.idempotency_key);
    writeFileSync(path, JSON.stringify(state));
    // The last ones have not been asked for.
    const lines = many(40).map((prompt, i) => (i < 30 ? prompt : `${prompt}, corrected`));
    prompts("forty.jsonl", lines);
    const priced = (await run(...SUBMIT, "--update", "--dry-run", "--json")).json();
    const { code, stderr } = await run(...SUBMIT, "--update");
    expect([code, stderr]).toEqual([0, expect.stringContaining("40 of 40 images on disk")]);
    expect(requests() - before).toBeLessThanOrEqual(Number(priced.image_count));
    expect(
      many(40)
        .slice(30)
        .map((prompt) => upstream.asked(prompt)),
    ).toEqual(Array(10).fill(0));
    expect(await billed()).toBe(upstream.billed());
  });
});

describe("giving up", () => {
  it("[CANCEL-6] sends nothing, and keeps what was made", async () => {
    const { before } = await stoppedRun();
    const { code, stdout, stderr } = await run("cancel", "forty");
    expect([code, requests()]).toEqual([0, before]);
    expect(stdout).toContain(`${before}/40 images`);
    expect(stderr).toContain(`${before} images on disk and verified in forty`);
    expect(readdirSync(join(cwd, "forty/images"))).toHaveLength(before);
    expect(await billed()).toBe(before);
  });

  it("with --cancel-on-interrupt waits for what has left, and keeps its pictures", async () => {
    prompts("forty.jsonl", many(40));
    const { code, stderr } = await interruptedAfter(8, ...SUBMIT, "--cancel-on-interrupt");
    expect([code, stderr]).toEqual([130, expect.stringContaining("12 of 40 images were finished and stay")]);
    expect([requests(), upstream.billed(), await billed()]).toEqual([12, 12, 12]);
    expect(readdirSync(join(cwd, "forty/images"))).toHaveLength(12);
    const again = await run(...SUBMIT);
    expect(again.stderr).not.toContain("before this item was made");
    const lines = readFileSync(join(cwd, "forty/results.jsonl"), "utf8").trim().split("\n");
    expect(lines.filter((line) => JSON.parse(line).status === "success")).toHaveLength(12);
    expect(requests()).toBe(12);
  });
});

const GENERATE = ["generate", "--file", "forty.jsonl", "-o", "made", "--max-cost", "9"];

describe("generate --file that is stopped", () => {
  it.each(["SIGINT", "SIGTERM"] as const)(
    "by %s awaits what is paid, keeps its pictures, and says how to go on",
    async (name) => {
      prompts("forty.jsonl", many(40));
      const { waiting } = answerOnly(2);
      const env = { ...cleanEnvironment(), OPENAI_API_KEY: OPENAI_KEY };
      const { child, exited } = startNode([BIN, ...GENERATE, ...where()], { cwd, env });
      await waiting;
      const heard = gate();
      child.stderr?.on("data", (text) => String(text).includes("waiting for") && heard.open());
      child.kill(name);
      await heard.promise;
      letGo();
      const { code, stderr } = await exited;
      expect(stderr).toContain("waiting for 4 requests that are paid");
      expect(stderr.trim().split("\n").at(-1)).toMatch(/^next: run the same command again/);
      expect([code, requests(), upstream.billed()]).toEqual([name === "SIGINT" ? 130 : 143, 6, 6]);
      expect(readdirSync(join(cwd, "made/images"))).toHaveLength(6);
      upstream.setBehaviour(null);
      expect((await run(...GENERATE)).code).toBe(0);
      expect([requests(), upstream.billed(), await billed()]).toEqual([40, 40, 40]);
    },
  );
});
