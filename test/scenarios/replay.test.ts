import { execFile } from "node:child_process";
import { cp, mkdir, readdir, readFile, utimes, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { gate } from "../support/gate.ts";
import { BIN, cleanEnvironment, imgbatch, startNode } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";
import type { Behaviour } from "../support/upstreams/fake-upstream.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { NATIVE_KEY, nativeBlocks, nativeErrors, startNative } from "../support/upstreams/native.ts";

const MODEL = "gemini-3-pro-image";

/** A configuration with the vendor's upstream at an address. */
const config = (baseUrl: string, more: object = {}) =>
  JSON.stringify({
    providers: [{ preset: "google", baseUrl, keyHeader: "x-goog-api-key" }],
    vendor: { preset: "google" },
    ...more,
  });

/** Programs of a team: each asks through another surface, and prints the answer. */
const PROGRAMS = `
  import { createHash } from "node:crypto";
  import { readFileSync } from "node:fs";
  import { execFileSync } from "node:child_process";
  const { OPENAI_BASE_URL, OPENAI_API_KEY: key, GOOGLE_GEMINI_BASE_URL } = process.env;
  const hash = (base64) => createHash("sha256").update(Buffer.from(base64, "base64")).digest("hex").slice(0, 8);
  const post = async (url, body, headers = { "content-type": "application/json", authorization: "Bearer " + key }) => {
    const answer = await fetch(url, { method: "POST", headers, body: headers["content-type"] ? JSON.stringify(body) : body });
    return { status: answer.status, value: await answer.json() };
  };
  const shown = ({ status, value }) =>
    value.error ? status + " " + (value.error.code ?? "") + " " + value.error.message : value.data.map(({ b64_json }) => hash(b64_json));
  const openai = async (prompt, more) => shown(await post(OPENAI_BASE_URL + "/images/generations", { model: "${MODEL}", prompt, ...more }));
  const edit = async (prompt, file) => {
    const form = new FormData();
    form.set("model", "${MODEL}");
    form.set("prompt", prompt);
    form.set("image", new Blob([readFileSync(file)], { type: "image/png" }), "a.png");
    return shown(await post(OPENAI_BASE_URL + "/images/edits", form, { authorization: "Bearer " + key }));
  };
  const native = async (text) => {
    const url = GOOGLE_GEMINI_BASE_URL + "/v1beta/models/${MODEL}:generateContent";
    const { status, value } = await post(url, { contents: [{ role: "user", parts: [{ text }] }] }, { "content-type": "application/json", "x-goog-api-key": key });
    if (value.promptFeedback || value.error) return status + " " + JSON.stringify(value.promptFeedback?.blockReason ?? value.error.message);
    return value.candidates[0].content.parts.flatMap(({ inlineData }) => (inlineData ? [hash(inlineData.data)] : []));
  };
  const batch = (file) => {
    const run = [${JSON.stringify(BIN)}, "submit", file, "--model", "${MODEL}", "-o", process.pid + "-" + file + "-out", "-q"];
    try { execFileSync(process.execPath, run, { stdio: ["ignore", "ignore", "inherit"] }); } catch {}
    const lines = readFileSync(process.pid + "-" + file + "-out/results.jsonl", "utf8").trim().split("\\n").map((line) => JSON.parse(line));
    return lines.map(({ files, error, provider }) => provider + " " + (error ? error.code : files.map(({ sha256 }) => sha256.slice(0, 8))));
  };
  const print = (value) => console.log(JSON.stringify(value));
`;

/** Runs programs within `exec`, and returns what they have printed. */
async function run(
  { cwd, env = {} }: { cwd: string; env?: Record<string, string> },
  args: readonly string[],
  programs: string,
) {
  const command = ["--", process.execPath, "--input-type=module", "-e", PROGRAMS + programs];
  const clean = cleanEnvironment({ HOME: cwd, TMPDIR: cwd, ...env });
  const exit = await imgbatch(["exec", "--config", "team.json", ...args, ...command], { cwd, env: clean });
  const told = exit.stdout.split("\n").filter((line) => line !== "");
  return { ...exit, told: told.map((line) => JSON.parse(line)) };
}

/** A directory of a team with an upstream that answers, and the key of it. */
async function team(behaviour: Behaviour | null = null) {
  const upstream = await startNative();
  upstream.size = SMALL;
  upstream.setBehaviour(behaviour);
  onTestFinished(() => upstream.close());
  const cwd = await tempDir();
  await writeFile(join(cwd, "team.json"), config(upstream.url));
  const record = (programs: string, usd = "5") => {
    const args = ["--replay", "pics", "--record", "--max-cost", usd];
    return run({ cwd, env: { GEMINI_API_KEY: NATIVE_KEY } }, args, programs);
  };
  const names = async () => (await readdir(join(cwd, "pics"))).sort();
  return { upstream, cwd, record, names };
}

describe("record and replay", () => {
  it("[REPLAY-1] a recorded directory answers on another machine, through every surface, without upstream, key and cost", async () => {
    const refusing: Behaviour = async (exchange) => {
      await exchange.read();
      if (exchange.request.prompt === "no") exchange.send(nativeBlocks.image());
      else exchange.send(await exchange.make());
    };
    const { upstream, cwd, record, names } = await team(refusing);
    await writeFile(join(cwd, "a.png"), await tinyPng());
    const lines = [
      { prompt: "a red fox", output_count: 3 },
      { prompt: "in autumn", reference_images: ["a.png"] },
      { prompt: "wide", aspect_ratio: "16:9" },
      { prompt: "no" },
    ];
    await writeFile(join(cwd, "p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
    const programs = `
      print(await openai("a red fox", { n: 2 }));
      print(await native("a red fox"));
      print(await edit("in autumn", "a.png"));
      print(await native("no"));
      print(await openai("no"));
      print(batch("p.jsonl"));`;
    const recorded = await record(programs);
    expect(recorded.code).toBe(0);
    const [two, one, autumn, , refused, batch] = recorded.told;
    expect(refused).toMatch(/^400 moderation_blocked /);
    expect(batch).toEqual([
      ...[0, 1, 2].map((at) => `replay ${at < 2 ? two[at] : batch[2].split(" ")[1]}`),
      `replay ${autumn}`,
      expect.stringMatching(/^replay \w{8}$/),
      "replay SAFETY_BLOCKED",
    ]);
    expect(one).toEqual([two[0]]);
    // Each was asked for once, whichever surface asked first.
    expect(upstream.requests.filter(({ kind }) => kind === "images").length).toBe(6);
    expect((await names()).filter((name) => name.endsWith(".json"))).toHaveLength(6);
    expect((await names()).filter((name) => name.endsWith(".png"))).toHaveLength(5);

    const elsewhere = await tempDir();
    await cp(join(cwd, "pics"), join(elsewhere, "pics"), { recursive: true });
    for (const name of ["a.png", "p.jsonl"]) await cp(join(cwd, name), join(elsewhere, name));
    await writeFile(join(elsewhere, "team.json"), config("https://nobody.invalid"));
    await upstream.close();
    const replayed = await run({ cwd: elsewhere }, ["--replay", "pics"], programs);
    expect({ code: replayed.code, told: replayed.told }).toEqual({ code: 0, told: recorded.told });
    for (const name of await names())
      expect(await readFile(join(elsewhere, "pics", name))).toEqual(await readFile(join(cwd, "pics", name)));
  });

  it("[REPLAY-5] equal requests at the same time are made once, and a failure is made again", async () => {
    let failures = 1;
    const slow: Behaviour = async (exchange) => {
      await exchange.read();
      await exchange.pause(300);
      exchange.send(
        failures-- > 0 ? nativeErrors.other(400, "INVALID_ARGUMENT", "No.") : await exchange.make(),
      );
    };
    const { upstream, record, names } = await team(slow);
    const { told } = await record(`
      print(await openai("an owl"));
      print(await Promise.all(Array.from({ length: 8 }, () => openai("a red fox", { n: 2 }))));
      print(await openai("an owl"));`);
    const [failed, foxes, owl] = told;
    expect(failed).toMatch(/^400 /);
    expect(foxes).toEqual(Array(8).fill(foxes[0]));
    expect(owl).toHaveLength(1);
    expect([upstream.asked("a red fox"), upstream.asked("an owl")]).toEqual([2, 2]);
    expect(await names()).toHaveLength(6);
  });

  it("[REPLAY-5] commands that record the same at the same time pay for it once, and a killed one keeps none of them waiting", async () => {
    const slow: Behaviour = async (exchange) => {
      await exchange.read();
      await exchange.pause(1500);
      exchange.send(await exchange.make());
    };
    const { upstream, cwd, record, names } = await team(slow);
    const ask = `print(await openai("a red fox"));`;
    const options = ["--config", "team.json", "--replay", "pics", "--record", "--max-cost", "5"];
    const command = ["--", process.execPath, "--input-type=module", "-e", PROGRAMS + ask];
    const env = cleanEnvironment({ HOME: cwd, TMPDIR: cwd, GEMINI_API_KEY: NATIVE_KEY });
    const killed = startNode([BIN, "exec", ...options, ...command], { cwd, env });
    await expect.poll(() => upstream.asked("a red fox")).toBe(1);
    const both = [record(ask), record(ask)];
    killed.child.kill("SIGKILL");
    const [one, other] = await Promise.all(both);
    expect(one?.told).toEqual(other?.told);
    expect([one?.stderr, other?.stderr].join()).not.toContain("asked twice");
    expect(upstream.asked("a red fox")).toBe(2);
    expect(await names()).toHaveLength(2);
  });

  it("[REPLAY-5] an image that is paid for is recorded when its caller has gone, and the command too", async () => {
    const slow: Behaviour = async (exchange) => {
      await exchange.read();
      await exchange.pause(1000);
      exchange.send(await exchange.make());
    };
    const { upstream, record, names } = await team(slow);
    const { code, stderr } = await record(`
      const body = JSON.stringify({ model: "${MODEL}", prompt: "a red fox" });
      const headers = { "content-type": "application/json", authorization: "Bearer " + key };
      const signal = AbortSignal.timeout(500);
      await fetch(OPENAI_BASE_URL + "/images/generations", { method: "POST", body, headers, signal }).catch(() => {});`);
    expect([code, stderr]).toEqual([0, expect.stringContaining("waiting for images to record")]);
    const { told } = await record(`print(await openai("a red fox"));`);
    expect(told[0]).toHaveLength(1);
    expect(
      upstream.requests.filter(({ kind, isAbandoned }) => kind === "images" && !isAbandoned),
    ).toHaveLength(1);
    expect([upstream.asked("a red fox"), (await names()).length]).toEqual([1, 2]);
  });

  it("[REPLAY-6] recording spends no more than --max-cost, and nothing for what is there", async () => {
    const { upstream, record } = await team();
    const ask = `for (const prompt of ["a red fox", "a red fox", "an owl"]) print(await openai(prompt));`;
    // An image costs 0.134.
    const [first, second] = [await record(ask, "0.2"), await record(ask, "0.01")];
    for (const { told } of [first, second]) {
      const [made, again, owl] = told;
      expect(again).toEqual(made);
      expect(owl).toMatch(/^402 .*costs \$0\.134; \$0\.0\d+ of --max-cost is left\. Nothing was sent\./);
    }
    expect(second.told[0]).toEqual(first.told[0]);
    expect([upstream.asked("a red fox"), upstream.asked("an owl")]).toEqual([1, 0]);
  });

  it("[BUDGET-1] [REPLAY-6] what a recording pays counts in the budgets of its data directory, and is refused above them", async () => {
    const { upstream, cwd } = await team();
    const data = ["--data", join(cwd, "data")];
    const budget = async (...words: string[]) => {
      const { code, stdout, stderr } = await runInProcess(["budget", ...words, "--json", ...data], { cwd });
      expect(code, stderr).toBe(0);
      return JSON.parse(stdout).budgets;
    };
    await budget("0.2/month");
    const args = ["--replay", "pics", "--record", "--max-cost", "5", ...data];
    const ask = `for (const prompt of ["a red fox", "a red fox", "an owl"]) print(await openai(prompt));`;
    const { told } = await run({ cwd, env: { GEMINI_API_KEY: NATIVE_KEY } }, args, ask);
    expect(told[1]).toEqual(told[0]);
    expect(told[2]).toMatch(/^402 .*The budget is \$0\.20 a month: \$0\.134 are spent/);
    expect([upstream.asked("a red fox"), upstream.asked("an owl")]).toEqual([1, 0]);
    expect(await budget()).toMatchObject([{ spent: 0.134, held: 0, left: 0.066 }]);
    expect(await budget("1/day", "--upstream", "google")).toMatchObject([
      {},
      { upstream: "google", spent: 0.134 },
    ]);
    const check = await runInProcess(["admin", "check", ...data], { cwd });
    expect(check.code, check.stderr).toBe(0);
  });

  it("[REPLAY-3] a request that holds a key is refused before it is paid, and the key is written nowhere", async () => {
    const { upstream, cwd, record, names } = await team();
    const ask = `
      for (const secret of [key, "${NATIVE_KEY}"]) print(await native("a fox with " + secret));
      print(await native("a fox"));`;
    const { code, told, stderr } = await record(ask);
    const refused = expect.stringMatching(
      /^400 .*a-fox-with-(imgb|api-key)-[0-9a-f]{16}\.json cannot be recorded: prompt holds an API key/,
    );
    expect([code, told]).toEqual([0, [refused, refused, [expect.any(String)]]]);
    expect(upstream.requests.filter(({ kind }) => kind === "images")).toHaveLength(1);
    const files = await Promise.all(
      (await names()).map((name) => readFile(join(cwd, "pics", name), "latin1")),
    );
    expect(files).toHaveLength(2);
    const written = [...(await names()), ...files, JSON.stringify(told), stderr].join("\n").toLowerCase();
    expect(written).not.toMatch(/aizasyfake|imgb_[a-z0-9]{8}/);
  });

  it("[REPLAY-5] a kill while recording leaves whole recordings, and the next run makes the rest", async () => {
    const reached = gate();
    const hanging: Behaviour = async (exchange) => {
      await exchange.read();
      if (exchange.request.prompt !== "second") return exchange.send(await exchange.make());
      reached.open();
      await exchange.pause(60_000);
    };
    const { upstream, cwd, record, names } = await team(hanging);
    const ask = `for (const prompt of ["first", "second", "third"]) print(await openai(prompt));`;
    const options = ["--config", "team.json", "--replay", "pics", "--record", "--max-cost", "5"];
    const command = ["--", process.execPath, "--input-type=module", "-e", PROGRAMS + ask];
    const env = cleanEnvironment({ HOME: cwd, TMPDIR: cwd, GEMINI_API_KEY: NATIVE_KEY });
    const running = startNode([BIN, "exec", ...options, ...command], { cwd, env });
    await reached.promise;
    running.child.kill("SIGKILL");
    await running.exited;
    expect(await names()).toHaveLength(2);
    // As if the kill had come long ago, while the second was written.
    const half = join(cwd, "pics", ".second.json.0123456789ab.partial");
    await writeFile(half, "half");
    await utimes(half, 1, 1);
    upstream.setBehaviour(null);
    const { told } = await record(ask);
    expect(told.flat()).toHaveLength(3);
    expect(["first", "second", "third"].map((prompt) => upstream.asked(prompt))).toEqual([1, 2, 1]);
    expect((await names()).map((name) => name.split("-")[0])).toEqual([
      "first",
      "first",
      "second",
      "second",
      "third",
      "third",
    ]);
  });

  it("[REPLAY-1] the configuration lets embedded commands and services answer from a directory, free of charge", async () => {
    const { cwd, record } = await team();
    await record(`print(await openai("a red fox"));`);
    await writeFile(join(cwd, "imgbatch.config.json"), config("https://nobody.invalid", { replay: "pics" }));
    await writeFile(join(cwd, "p.txt"), "a red fox\nan owl\n");
    // Naming the file is the consent to what was recorded.
    const named = ["--config", "imgbatch.config.json"];
    const own = ["--model", MODEL, "--data", join(cwd, "data"), ...named];
    const { code, json } = await runInProcess(["submit", "p.txt", ...own, "--json"], { cwd });
    expect(code).toBe(4);
    expect(json()).toMatchObject({ actual_cost: 0, fetched_count: 1, counts: { failed: 1 } });
    const results = await readFile(join(cwd, "p-images", "results.jsonl"), "utf8");
    const [fox, owl] = results
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(fox).toMatchObject({ status: "success", provider: "replay" });
    expect(owl.error.message).toMatch(
      /^There is no recording of "an owl" with gemini-3-pro-image \(aspect_ratio 1:1, image_size 1K, mime_type image\/png, image 1\): an-owl-[0-9a-f]{16}\.json is missing/,
    );
    const wide = ["generate", "a red fox", "--aspect-ratio", "16:9", "-o", "wide.png", ...own];
    expect((await runInProcess(wide, { cwd })).stderr).toContain(
      "is missing in the replay directory. A recording of this prompt differs in aspect_ratio (1:1). Run imgbatch exec",
    );
    const one = await runInProcess(["generate", "a red fox", "-o", "fox.png", ...own, "--json"], { cwd });
    expect([one.code, one.json()]).toMatchObject([0, { cost: 0 }]);
    expect(one.stderr).toMatch(
      /^using recorded images, not a model, because the configuration has `replay`\n/,
    );
    const probe = ["providers", "--probe", "--json", "--data", join(cwd, "data"), ...named];
    const providers = await runInProcess(probe, { cwd });
    expect(providers.json()).toMatchObject({
      providers: [{ name: "replay", type: "replay", total: { billed: 0 }, probe: { ok: true } }],
    });
  });

  it("[REPLAY-6] what cannot be recorded or replayed is refused before anything starts", async () => {
    const cwd = await tempDir();
    vi.stubEnv("XDG_CONFIG_HOME", cwd);
    await mkdir(join(cwd, "pics"));
    const refused = async (...args: string[]) => {
      const { code, stderr } = await runInProcess(["exec", ...args, "--", "never-run"], { cwd });
      expect(code).toBe(2);
      return stderr;
    };
    for (const name of ["google-batch", "openai-batch"])
      expect(await refused("--upstream", name, "--replay", "pics", "--record")).toMatch(
        /makes images as batch jobs of the upstream, which cannot be recorded\. Nothing was sent\./,
      );
    expect(await refused("--record")).toMatch(/--record needs a directory/);
    expect(await refused("--replay", "missing")).toMatch(/missing: there is no such directory/);
    expect(await refused("--replay", "")).toMatch(/replay/);
    // A stranger may have chosen where to write.
    await writeFile(join(cwd, "imgbatch.config.json"), '{"replay": "pics"}');
    const found = await runInProcess(["exec", "--record", "--", "never-run"], { cwd });
    expect([found.code, found.stderr]).toEqual([3, expect.stringMatching(/needs your consent.*: replay\./)]);
    const agreed = await runInProcess(["doctor", "--agree", "--data", join(cwd, "data")], { cwd });
    expect(agreed.stdout).toContain("is right, and you agree to replay");
    expect((await runInProcess(["exec", "--record", "--", "true"], { cwd })).code).toBe(0);
  });

  it("[REPLAY-1] the recipe for a team's tests works as it is written", async () => {
    const page = await readFile(resolve(import.meta.dirname, "../../templates/README.md"), "utf8");
    const section = page.slice(page.indexOf("## Tests on real pictures"), page.indexOf("## ComfyUI"));
    const commands = /^```sh\n(.+?)^```/ms.exec(section)?.[1]?.trim().split("\n") ?? [];
    expect(commands).toHaveLength(2);
    const { upstream, cwd } = await team();
    await writeFile(join(cwd, "test.mjs"), `${PROGRAMS} print(await openai("a red fox"));`);
    await writeFile(join(cwd, "package.json"), JSON.stringify({ scripts: { test: "node test.mjs" } }));
    await mkdir(join(cwd, "bin"));
    const call = `#!/bin/sh\nexec "${process.execPath}" "${BIN}" "$@"\n`;
    await writeFile(join(cwd, "bin", "imgbatch"), call, { mode: 0o755 });
    const env = cleanEnvironment({ HOME: cwd, TMPDIR: cwd, PATH: `${join(cwd, "bin")}:${process.env.PATH}` });
    const told: string[] = [];
    for (const [at, command] of commands.entries()) {
      expect(command).toContain("--upstream google --vendor google");
      const here = command.replace("--upstream google --vendor google", "--config team.json");
      const keys = at === 0 ? { GEMINI_API_KEY: NATIVE_KEY } : {};
      const { stdout } = await promisify(execFile)("sh", ["-c", here], { cwd, env: { ...env, ...keys } });
      told.push(stdout);
      await upstream.close();
    }
    expect(told[0]).toMatch(/\["\w{8}"\]/);
    expect(told[1]).toBe(told[0]);
  });
});
