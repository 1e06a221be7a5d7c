import { EventEmitter } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, expect, it, onTestFinished, vi } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FakeProvider, FakeUpstream, made, tinyPng } from "../support/fake-provider.ts";
import { type Gate, gate } from "../support/gate.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { startTestService, type TestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { OPENAI_KEY } from "../support/upstreams/openai.ts";
import { startFake } from "../upstreams/services.ts";

/*
 * A run of four images whose upstream makes two, and the others only when the test lets it: what is here meanwhile?
 */

const IDS = ["ant", "bee", "cat", "dog"];
const EARLY = ["ant", "bee"];

let cwd: string;
beforeEach(async () => {
  cwd = await tempDir();
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  const lines = IDS.map((id) => JSON.stringify({ custom_id: id, prompt: `the ${id}` }));
  writeFileSync(join(cwd, "p.jsonl"), lines.join("\n"));
});

const path = (name: string) => join(cwd, "out", name);
const read = (name: string) => readFileSync(path(name));
const list = (folder: string) => (existsSync(path(folder)) ? readdirSync(path(folder)).sort() : []);
const pictures = (ids: readonly string[], type = "png") => ids.map((id) => `${id}.${type}`);
const results = () =>
  read("results.jsonl")
    .toString()
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

/** The page names every image that is here, and counts the others. */
function expectSheet(here: readonly string[], type = "png"): void {
  const page = read("index.html").toString();
  const linked = [...page.matchAll(/class="pic" href="images\/([^"]+)"/g)].map(([, name]) => name);
  expect(linked.sort()).toEqual(pictures(here, type));
  const open = IDS.length - here.length;
  expect(page.match(/(\d+) not here yet/)?.[1]).toBe(open === 0 ? undefined : String(open));
  expect(page).not.toMatch(/<\/code> queued/);
}

/** Resolves when the sheet shows the first two images. */
const untilEarly = () =>
  vi.waitFor(() => expect(readFileSync(path("index.html"), "utf8")).toContain("2 not here yet"), {
    timeout: 15_000,
    interval: 30,
  });

const isLate = (prompt: string) => !EARLY.some((id) => prompt.endsWith(id));

/** A service elsewhere, whose provider holds the late images until `rest` opens. */
async function elsewhere(
  provider = new FakeProvider({ concurrency: 4 }),
): Promise<{ service: TestService; provider: FakeProvider; rest: Gate<void> }> {
  const rest = gate();
  provider.answer = async ({ prompt }) => {
    if (isLate(prompt)) await rest.promise;
    return made(await tinyPng(prompt.length * 7 + prompt.charCodeAt(4)));
  };
  const service = await startTestService({ providers: [provider] });
  // A service does not close while its provider is at work.
  onTestFinished(() => rest.open());
  return { service, provider, rest };
}

const SUBMIT = ["submit", "p.jsonl", "-o", "out"];
const at = ({ url, data }: TestService) => ["--base-url", url, "--data", data];

/** The embedded service, and its paid upstream, which holds the late images until `letGo`. */
async function embedded(): Promise<{ billed: () => number; letGo: () => void; where: string[] }> {
  const { fake, entry, model } = await startFake("openai");
  onTestFinished(() => fake.close());
  vi.stubEnv("OPENAI_API_KEY", OPENAI_KEY);
  const models = [{ id: model, sizes: ["1K"], prices: { "1K": 0.05 } }];
  const providers = [{ name: "shop", ...entry, models: [model], concurrency: 4 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ models, providers }));
  const rest = gate();
  onTestFinished(() => rest.open());
  fake.setBehaviour(async (exchange) => {
    await exchange.read();
    if (isLate(exchange.request.prompt ?? "")) await rest.promise;
    exchange.send(await exchange.make());
  });
  const where = ["--config", "c.json", "--data", join(cwd, "data"), "--max-cost", "1"];
  return { billed: fake.billed, letGo: () => rest.open(), where };
}

it("[EARLY-1] images are on disk, verified, and in a true contact sheet while their run goes on", async () => {
  const { billed, letGo, where } = await embedded();
  const running = runInProcess([...SUBMIT, ...where, "--json"], { cwd });
  await untilEarly();
  expect(list("images")).toEqual(pictures(EARLY));
  expect(results()).toMatchObject(EARLY.map((custom_id) => ({ custom_id, verified: "sha256" })));
  expectSheet(EARLY);
  letGo();
  const ended = await running;
  expect(ended.json()).toMatchObject({ counts: { total: 4, success: 4 }, fetched_count: 4 });
  expect([ended.code, list("images")]).toEqual([0, pictures(IDS)]);
  expectSheet(IDS);
  expect(billed()).toBe(4);
  // The directory is the same as when all images come at the end.
  const before = read("results.jsonl").toString();
  rmSync(path("images"), { recursive: true });
  rmSync(path("results.jsonl"));
  expect((await runInProcess([...SUBMIT, ...where], { cwd })).code).toBe(0);
  expect(read("results.jsonl").toString()).toBe(before);
  expect(billed()).toBe(4);
});

it.each([["wait", "out"], ["watch", "out"], SUBMIT])(
  "[EARLY-1] %s saves what a service elsewhere has made, before the batch has ended",
  async (...command) => {
    const { service, rest } = await elsewhere();
    expect((await runInProcess([...SUBMIT, "--detach", ...at(service)], { cwd })).code).toBe(0);
    expect(existsSync(path("images"))).toBe(false);
    const running = runInProcess([...command, "--interval", "100ms", ...at(service)], { cwd });
    await untilEarly();
    expect(list("images")).toEqual(pictures(EARLY));
    expectSheet(EARLY);
    rest.open();
    expect((await running).code).toBe(0);
    if (command[0] !== "submit")
      expect((await runInProcess(["download", "out", ...at(service)], { cwd })).code).toBe(0);
    expect(list("images")).toEqual(pictures(IDS));
    expectSheet(IDS);
  },
);

it("[EARLY-1] generate --file shows what it has made, and what a stop left", async () => {
  const { letGo, where } = await embedded();
  const signals = new EventEmitter();
  const make = ["generate", "--file", "p.jsonl", "-o", "out", ...where];
  const running = runInProcess(make, { cwd, signals });
  await untilEarly();
  expectSheet(EARLY);
  signals.emit("SIGINT", "SIGINT");
  letGo();
  expect((await running).code).toBe(130);
  expectSheet(IDS);
});

it("[EARLY-2] Ctrl-C keeps what was made, says where it is, and the same command pays for nothing again", async () => {
  const { service, provider, rest } = await elsewhere();
  const signals = new EventEmitter();
  const running = runInProcess([...SUBMIT, "--interval", "100ms", ...at(service)], { cwd, signals });
  await untilEarly();
  signals.emit("SIGINT", "SIGINT");
  const stopped = await running;
  expect([stopped.code, stopped.stderr]).toEqual([
    130,
    expect.stringContaining("2 images on disk so far: out/index.html"),
  ]);
  expect(list("images")).toEqual(pictures(EARLY));
  rest.open();
  const again = await runInProcess([...SUBMIT, ...at(service)], { cwd });
  expect([again.code, list("images")]).toEqual([0, pictures(IDS)]);
  expect(again.stderr).toContain("2 of them fetched now");
  expect(provider.requests).toHaveLength(4);
});

it("[EARLY-2] a kill leaves nothing half-written, and the same command goes on", async () => {
  const { service, provider, rest } = await elsewhere();
  const { child, exited } = startNode([BIN, ...SUBMIT, "--interval", "100ms", ...at(service)], {
    cwd,
    env: cleanEnvironment(),
  });
  await untilEarly();
  child.kill("SIGKILL");
  await exited;
  expect(list("images")).toEqual(pictures(EARLY));
  rest.open();
  expect((await runInProcess([...SUBMIT, ...at(service)], { cwd })).code).toBe(0);
  expect(list("images")).toEqual(pictures(IDS));
  expect(provider.requests).toHaveLength(4);
});

it("[EARLY-1] an image of another type than asked for is converted early, and its original is in versions/", async () => {
  const { service, rest } = await elsewhere(new FakeUpstream("procedural", { concurrency: 4, isFree: true }));
  const submit = [...SUBMIT, "--mime-type", "image/webp", "--interval", "100ms", ...at(service)];
  const running = runInProcess(submit, { cwd });
  await untilEarly();
  expect([list("images"), list("versions")]).toEqual([pictures(EARLY, "webp"), pictures(EARLY)]);
  expectSheet(EARLY, "webp");
  rest.open();
  expect((await running).code).toBe(0);
  expect([list("images"), list("versions")]).toEqual([pictures(IDS, "webp"), pictures(IDS)]);
});

it("[EARLY-3] a picture that a person changed meanwhile is moved to versions/, never overwritten", async () => {
  const { service, rest } = await elsewhere();
  const running = runInProcess([...SUBMIT, "--interval", "100ms", ...at(service)], { cwd });
  await untilEarly();
  const [original, own] = [read("images/ant.png"), await tinyPng(9)];
  writeFileSync(path("images/ant.png"), own);
  rest.open();
  const ended = await running;
  expect([ended.code, ended.stderr]).toEqual([
    0,
    expect.stringContaining("images/ant.png was changed by hand: that picture is now versions/ant.png"),
  ]);
  expect(read("versions/ant.png").equals(own)).toBe(true);
  expect(read("images/ant.png").equals(original)).toBe(true);
  const [line, ...others] = read("versions/results.jsonl").toString().trim().split("\n");
  const file = { path: "versions/ant.png", sha256: sha256Hex(own), bytes: own.length };
  expect(JSON.parse(line ?? "")).toMatchObject({ custom_id: "ant", verified: null, files: [file] });
  expect([others, JSON.parse(line ?? "").cost]).toEqual([[], undefined]);
});

it("[EARLY-3] a picture whose item fails after it was saved goes to versions/", async () => {
  const { service, rest } = await elsewhere();
  const running = runInProcess([...SUBMIT, "--interval", "100ms", ...at(service)], { cwd });
  await untilEarly();
  const own = read("images/ant.png");
  // The service reads its files back before it settles: this one is not there any more.
  const kept = readdirSync(service.data, { recursive: true, encoding: "utf8" })
    .map((name) => join(service.data, name))
    .find((name) => statSync(name).isFile() && readFileSync(name).equals(own));
  rmSync(kept ?? "not found");
  rest.open();
  const ended = await running;
  expect(ended.code).toBe(4);
  expect(results()).toMatchObject([{ custom_id: "ant", status: "failed", files: [] }, {}, {}, {}]);
  expect(list("images")).toEqual(pictures(["bee", "cat", "dog"]));
  expect(read("versions/ant.png").equals(own)).toBe(true);
});
