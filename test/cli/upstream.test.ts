import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { keyProblem } from "../../src/contract/data-directory.ts";
import { ProviderError } from "../../src/domain/ports/image-provider.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { findPreset, PRESETS } from "../../src/providers/catalogue/catalogue.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FakeProvider, tinyPng } from "../support/fake-provider.ts";
import { listening } from "../support/listening.ts";
import { startFakeUpstream } from "../support/openai-upstream.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const CONFIG = "imgbatch.config.json";
const UPSTREAM = ["--upstream", "google"];

/** A directory with a prompt file, below it the data directory, and no well-known key in the environment. */
async function workplace() {
  for (const { keyVariable } of PRESETS) {
    if (keyVariable !== null) vi.stubEnv(keyVariable, "");
  }
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  const cwd = await tempDir();
  const data = join(cwd, "data");
  writeFileSync(join(cwd, "p.jsonl"), JSON.stringify({ prompt: "a red kite" }));
  // Naming the file is the consent to it.
  const config = () => (existsSync(join(cwd, CONFIG)) ? ["--config", CONFIG] : []);
  const run = (...args: string[]) => runInProcess([...args, ...config(), "--data", data], { cwd });
  return { cwd, data, run, runState: () => JSON.parse(readFileSync(join(cwd, "out/imgbatch.json"), "utf8")) };
}

/** A service that says that it makes images with an upstream. Its account is empty, and so its images cost nothing. */
function startServiceOf(data: string, name: string) {
  const models = findPreset(name)?.models.map(({ id }) => ({ id, prices: { "1K": 0 } }));
  const config = { models, providers: [{ preset: name, free: true }] };
  return startTestService({ data, config, providers: [new FakeProvider()] });
}

const SUBMIT = ["submit", "p.jsonl", "-o", "out"];

describe("a key of the environment", () => {
  const STRANGE = "holds characters that no key has:";
  it.each([
    ["canary\u201ckey-0123456789", `${STRANGE} U+201C`],
    ["canary-key-0123456789\u200b", `${STRANGE} U+200B`],
    ["canary key-0123456789", `${STRANGE} U+0020`],
    ["Bearer canary-key-0123456789", `${STRANGE} U+0020; leave out Bearer and`],
    ['"canary-key-0123456789"', `${STRANGE} U+0022`],
    ["'canary-key-0123456789'", `${STRANGE} U+0027`],
    ["<canary-key-0123456789>", `${STRANGE} U+003C`],
    ["$GEMINI_API_KEY", `${STRANGE} U+0024`],
    ['{"api_key":"canary-key-0123456789"}', `${STRANGE} U+007B, U+007D`],
    [
      "export GEMINI_API_KEY=canary-key-0123456789",
      `${STRANGE} U+0020; leave out export GEMINI_API_KEY= and`,
    ],
    ["GEMINI_API_KEY=canary-key-0123456789", "begins with more than a key: leave out GEMINI_API_KEY= and"],
    ["api_key:canary-key-0123456789", "begins with more than a key: leave out api_key: and"],
  ])("that holds what no key holds is exit 3 before anything is made: %j", async (key, problem) => {
    const { data, cwd, run } = await workplace();
    vi.stubEnv("GEMINI_API_KEY", key);
    for (const command of [
      [...SUBMIT, ...UPSTREAM],
      ["doctor", ...UPSTREAM],
    ]) {
      const { code: exit, stdout, stderr } = await run(...command);
      expect([command[0], exit]).toEqual([command[0], 3]);
      expect(stdout + stderr).toContain(`GEMINI_API_KEY ${problem}`);
      expect(stdout + stderr).not.toContain("0123456789");
    }
    expect([existsSync(join(cwd, "out")), existsSync(join(data, "server.json"))]).toEqual([false, false]);
  });

  it("that looks like none is sent as it is: the upstream knows its own", async () => {
    for (const key of ["c2VjcmV0LWtleQ==", "KEY=", "sk_live:abc=def", "AIzaSy-token-x"])
      expect([key, keyProblem("GEMINI_API_KEY", key)]).toEqual([key, null]);
  });
});

it.each(["socks5://proxy.example:1080", "http://a proxy"])(
  "a proxy of the environment that is none is exit 2, for upstreams and for a named service: %s",
  async (proxy) => {
    const { cwd, run } = await workplace();
    vi.stubEnv("GEMINI_API_KEY", "canary-key-0123456789");
    vi.stubEnv("https_proxy", "");
    vi.stubEnv("HTTPS_PROXY", proxy);
    const { code, stderr } = await run(...SUBMIT, ...UPSTREAM);
    expect([code, stderr]).toEqual([2, expect.stringContaining("HTTPS_PROXY")]);
    expect(existsSync(join(cwd, "out"))).toBe(false);
    vi.stubEnv("IMGBATCH_API_KEY", "canary-key-0123456789");
    const named = await run("list", "--base-url", "https://images.example");
    expect([named.code, named.stderr]).toEqual([2, expect.stringContaining("HTTPS_PROXY")]);
  },
);

describe("--upstream", () => {
  it("is remembered by the directory of the run, for all commands about it", async () => {
    const { cwd, data, run, runState } = await workplace();
    const service = await startServiceOf(data, "google");
    expect(await run(...SUBMIT, ...UPSTREAM)).toMatchObject({ code: 0 });
    expect(runState()).toMatchObject({ upstream: "google", request: { model: "gemini-nano-banana-2.1" } });
    for (const args of [SUBMIT, ["status", "out"], ["download", "out"], ["wait", "out"]])
      expect([args, (await run(...args)).code]).toEqual([args, 0]);
    await service.close(0);

    // Without the memory these would draw.
    for (const args of [
      [...SUBMIT, "--new"],
      ["retry", "out"],
      ["wait", "out"],
    ]) {
      const { code, stderr } = await run(...args);
      expect([args, code]).toEqual([args, 3]);
      expect(stderr).toContain("GEMINI_API_KEY");
    }
    expect((await run(...SUBMIT)).code).toBe(0);
    const other = await run(...SUBMIT, "--upstream", "openai");
    expect(other.code).toBe(6);
    expect(other.stderr).toContain("belongs to a run with the upstream google, not openai");

    writeFileSync(
      join(cwd, "out/imgbatch.json"),
      JSON.stringify({ ...runState(), upstream: "of another time" }),
    );
    const lacking = await run(...SUBMIT, "--new");
    expect([lacking.code, lacking.stderr]).toEqual([6, expect.stringContaining("--config FILE")]);
    // What was made is there all the same.
    expect((await run("status", "out")).code).toBe(0);
  });

  it("picks a provider of the configuration, whose address is the only one that is asked", async () => {
    const { cwd, run, runState } = await workplace();
    const [proxy, other] = [await startFakeUpstream(), await startFakeUpstream()];
    const entry = { type: "openai", free: true };
    const providers = [
      { name: "other", baseUrl: other.url, ...entry },
      { name: "proxy", baseUrl: proxy.url, ...entry },
    ];
    writeFileSync(join(cwd, CONFIG), JSON.stringify({ providers }));
    expect(await run(...SUBMIT, "--upstream", "proxy")).toMatchObject({ code: 0 });
    expect([proxy.requests.length, other.requests.length]).toEqual([1, 0]);
    expect(runState().upstream).toBe("proxy");
    // The directory remembers it, also under another name for it.
    expect((await run(...SUBMIT, "--upstream", "other")).code).toBe(6);
    expect((await run("generate", "a fox", "-o", "fox.png", "--upstream", "openai")).code).toBe(0);
    expect(other.requests).toHaveLength(1);
    for (const args of [SUBMIT, ["generate", "a fox"], ["models"], ["providers"], ["mcp"], ["serve"]]) {
      const { code, stderr } = await run(...args, "--upstream", "google");
      expect([args, code]).toEqual([args, 2]);
      expect(stderr).toContain(`${join(cwd, CONFIG)} has other, proxy.`);
    }
    const doctor = await run("doctor", "--upstream", "google");
    expect([doctor.code, doctor.stdout]).toEqual([2, expect.stringContaining("has other, proxy.")]);
  });

  it("[RUN-25] never delivers what another address made: the address is part of the run", async () => {
    const { cwd, run, runState } = await workplace();
    const [standIn, vendor] = [await startFakeUpstream(), await startFakeUpstream()];
    const at = (baseUrl: string) =>
      writeFileSync(
        join(cwd, CONFIG),
        JSON.stringify({ providers: [{ name: "p", type: "openai", free: true, baseUrl }] }),
      );
    at(standIn.url);
    expect((await run(...SUBMIT)).code).toBe(0);
    const made = ["generate", "--file", "p.jsonl", "-o", "made"];
    expect((await run(...made)).code).toBe(0);
    const [first] = runState().batches;
    const [before] = [standIn.requests.length];
    at(vendor.url);
    for (const args of [SUBMIT, [...SUBMIT, "--update"], [...SUBMIT, "--dry-run"], ["retry", "out"], made]) {
      const { code, stderr } = await run(...args);
      expect([args, code]).toEqual([args, 6]);
      const origins = [standIn, vendor].map(({ url }) => `openai ${new URL(url).origin}`);
      expect(stderr).toContain(`come from ${origins.join(", not ")}`);
    }
    expect(vendor.requests).toEqual([]);
    // Elsewhere, and with --new here, they are made.
    expect((await run("submit", "p.jsonl", "-o", "other")).code).toBe(0);
    expect(vendor.requests).toHaveLength(1);
    expect((await run(...SUBMIT, "--new")).code).toBe(0);
    expect(vendor.requests).toHaveLength(2);
    expect(runState().batches[0].idempotency_key).not.toBe(first.idempotency_key);
    at(standIn.url);
    // A new directory finds the batch of the same address again.
    expect((await run("submit", "p.jsonl", "-o", "again")).stderr).toContain(`re-using ${first.id}`);
    expect(standIn.requests).toHaveLength(before);
  });

  it("is named, with a model that is not its first, where the advice is to submit into a new directory", async () => {
    const { cwd, data } = await workplace();
    const refusing = new FakeProvider();
    refusing.answer = async () => {
      throw new ProviderError("SAFETY_BLOCKED", "refused");
    };
    const [first = "", other = ""] = findPreset("google")?.models.map(({ id }) => id) ?? [];
    const models = [first, other].map((id) => ({ id, prices: { "1K": 0 } }));
    const config = { models, providers: [{ preset: "google", free: true }] };
    await startTestService({ data, config, providers: [refusing] });
    for (const [model, named] of [
      [first, "--upstream google"],
      [other, `--model ${other} --upstream google`],
    ] as const) {
      const args = ["submit", "-", "-o", model, "--model", model, ...UPSTREAM, "--data", data];
      const { stderr } = await runInProcess(args, { cwd, stdin: '{"prompt": "a red kite"}' });
      const file = `${model}/retry.jsonl`;
      expect(stderr).toContain(
        `then:\nnext: imgbatch submit ${file} --output ${model}-retry ${named} --data ${data}\n`,
      );
    }
  });

  it("is remembered by a run of single requests, too", async () => {
    const { data, run, runState } = await workplace();
    const service = await startServiceOf(data, "google");
    const generate = ["generate", "--file", "p.jsonl", "-o", "out"];
    expect(await run(...generate, ...UPSTREAM)).toMatchObject({ code: 0 });
    expect(runState()).toMatchObject({ kind: "realtime", upstream: "google" });
    await service.close(0);
    expect((await run(...generate)).code).toBe(3);
  });

  it("is a conflict with a running service that has other providers, and nothing is sent", async () => {
    const { cwd, data, run } = await workplace();
    await startTestService({ data });
    for (const args of [SUBMIT, [...SUBMIT, "--dry-run"], ["generate", "a fox"]]) {
      const { code, stderr } = await run(...args, ...UPSTREAM);
      expect([args, code]).toEqual([args, 6]);
      expect(stderr).toContain(
        "makes images with procedural (procedural), and this command asks for google (native, https://generativelanguage.googleapis.com)",
      );
      expect(stderr).toContain("next: stop the other process, or choose another directory with --data");
    }
    expect(existsSync(join(cwd, "out"))).toBe(false);
  });

  it("is wrong usage together with the address of a service", async () => {
    const { run } = await workplace();
    const { code, stderr } = await run(...SUBMIT, ...UPSTREAM, "--base-url", "https://images.example.com");
    expect(code).toBe(2);
    expect(stderr).toContain("this command talks to https://images.example.com");
    expect((await run(...SUBMIT, "--upstream", "gogle")).stderr).toContain("Did you mean google?");
  });

  it("needs the key in its variable before anything is created", async () => {
    const { cwd, data, run } = await workplace();
    for (const args of [SUBMIT, ["generate", "a fox"], ["serve"]]) {
      const { code, stderr } = await run(...args, ...UPSTREAM);
      expect([args, code]).toEqual([args, 3]);
      expect(stderr).toContain("GEMINI_API_KEY is not set: images by google need it.");
    }
    expect((await runInProcess(["exec", ...UPSTREAM, "--", "true"], { cwd })).code).toBe(3);
    expect([existsSync(data), existsSync(join(cwd, "out"))]).toEqual([false, false]);
  });

  it("holds for the providers of a file when none of them has its key", async () => {
    const { cwd, data, run } = await workplace();
    const google = { preset: "google" };
    const second = { ...google, name: "second", apiKeyEnv: "SECOND_KEY" };
    writeFileSync(join(cwd, CONFIG), JSON.stringify({ providers: [google, second] }));
    const { code, stderr } = await run(...SUBMIT);
    expect(code).toBe(3);
    expect(stderr).toContain(
      "GEMINI_API_KEY and SECOND_KEY are not set: images by google or second need them.",
    );
    expect(stderr).toContain("\nexport GEMINI_API_KEY=<your key>; export SECOND_KEY=<your key>");
    expect(existsSync(data)).toBe(false);
  });

  it("a key in the environment changes nothing, and one line says how to use it", async () => {
    const { run } = await workplace();
    vi.stubEnv("OPENAI_API_KEY", "sk-not-used");
    const { code, stderr } = await run(...SUBMIT);
    expect(code).toBe(0);
    const lines = stderr.split("\n").filter((line) => line.includes("OPENAI_API_KEY"));
    expect(lines).toEqual([
      "using the embedded service (procedural drawings, not a model); OPENAI_API_KEY is set: add --upstream openai for real images",
    ]);
    expect((await run("list")).stderr).not.toContain("OPENAI_API_KEY");
  });
});

it("a server on this machine that does not run ends each command at once; once it runs, the same command goes on", async () => {
  const { cwd, run } = await workplace();
  const server = createServer();
  const { port } = new URL(await listening(server));
  server.close();
  const baseUrl = `http://127.0.0.1:${port}/v1`;
  const card = { name: "card", type: "openai", baseUrl, models: ["*"], free: true };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ providers: [card] }));
  const commands = [
    SUBMIT,
    ["wait", "out"],
    ["generate", "a fox", "-o", "fox.png"],
    ["generate", "--file", "p.jsonl", "-o", "many"],
  ];
  // A command that asks again waits some seconds before: here they pass at once.
  let laterMs = 0;
  vi.spyOn(systemClock, "nowMs").mockImplementation(() => Date.now() + laterMs);
  for (const args of commands) {
    laterMs += 10_000;
    const { code, stderr } = await run(...args);
    expect([args, code]).toEqual([args, 7]);
    expect(stderr).toMatch(/card:? could not be reached \(ECONNREFUSED\)/);
    expect(stderr).toContain(`start the server at ${baseUrl}, or correct the \`baseUrl\``);
  }
  const answer = JSON.stringify({ data: [{ b64_json: (await tinyPng()).toString("base64") }] });
  const started = createServer((request, response) => {
    request.resume().on("end", () => {
      response.writeHead(200, { "content-type": "application/json" }).end(answer);
    });
  }).listen(Number(port), "127.0.0.1");
  onTestFinished(() => new Promise((done) => void started.close(() => done())));
  laterMs += 10_000;
  expect(await run(...SUBMIT)).toMatchObject({ code: 0 });
});

it("the owner reads what the upstream says, in at most two lines and without keys", async () => {
  const { cwd, run } = await workplace();
  const message = "The model is overloaded (sk-abcdef0123456789).\nTry again later.\nA third line.";
  const upstream = await startFakeUpstream();
  upstream.refusal = { status: 503, message };
  const card = { name: "card", type: "openai", baseUrl: upstream.url, models: ["*"], free: true };
  writeFileSync(join(cwd, "imgbatch.config.json"), JSON.stringify({ providers: [card] }));
  const words = "card failed (HTTP 503): The model is overloaded ([API key]). Try again later.";
  const generated = await run("generate", "a fox", "-o", "fox.png", "--retries", "0");
  expect([generated.code, generated.stderr]).toEqual([7, expect.stringContaining(words)]);
  expect((await run(...SUBMIT)).stderr).toContain(words);
});

describe("a provider that cannot be used", () => {
  const asking = [
    [...SUBMIT.slice(0, 3), "other"],
    ["generate", "a fox", "-o", "fox.png"],
    ["generate", "--file", "p.jsonl", "-o", "many"],
  ];

  it("writes the log of the embedded service with --verbose only", async () => {
    const { cwd, run } = await workplace();
    const upstream = await startFakeUpstream();
    upstream.refusal = { status: 401, message: "Incorrect API key" };
    const use = { baseUrl: upstream.url, models: ["*"], apiKeyEnv: "CARD_KEY" };
    const card = { name: "card", type: "openai", free: true, ...use };
    writeFileSync(join(cwd, CONFIG), JSON.stringify({ providers: [{ ...card, rateMultiplier: 0 }] }));
    vi.stubEnv("CARD_KEY", "first-key");
    const logged = /^\d\d:\d\d:\d\d error a provider is disabled/m;
    const calm = await run(...SUBMIT);
    expect([calm.code, calm.stderr]).toEqual([3, expect.not.stringMatching(/^\d\d:\d\d:\d\d /m)]);
    vi.stubEnv("CARD_KEY", "second-key");
    expect((await run(...SUBMIT, "-v")).stderr).toMatch(logged);
  });

  it("[HEALTH-8] parks the batch when its key is refused: every command asks once and ends with 3, until the key is right", async () => {
    const { cwd, run } = await workplace();
    const upstream = await startFakeUpstream();
    upstream.refusal = { status: 401, message: "Incorrect API key" };
    const use = { baseUrl: upstream.url, models: ["*"], apiKeyEnv: "CARD_KEY" };
    const card = { name: "card", type: "openai", free: true, ...use };
    writeFileSync(join(cwd, CONFIG), JSON.stringify({ providers: [{ ...card, rateMultiplier: 0 }] }));
    vi.stubEnv("CARD_KEY", "first-key");
    for (const args of [SUBMIT, ["wait", "out"], SUBMIT]) {
      const { code, stderr } = await run(...args);
      expect([args, code]).toEqual([args, 3]);
      expect(stderr).toMatch(/imgbatch_\w+ is parked until the configuration changes\. card: /);
      expect(stderr).toMatch(
        /\nset a key that the upstream takes in the variable of the provider \(after a change at the upstream: imgbatch providers --probe .*\), then run/,
      );
    }
    for (const args of asking) {
      const { code, stderr } = await run(...args);
      expect([args, code, stderr]).toEqual([
        args,
        3,
        expect.stringMatching(/card:? does not accept the key \(HTTP 401\)/),
      ]);
    }
    expect(existsSync(join(cwd, "fox.png"))).toBe(false);
    vi.stubEnv("CARD_KEY", "second-key");
    upstream.refusal = null;
    const { code, stderr } = await run(...SUBMIT);
    expect([code, stderr]).toEqual([0, expect.stringContaining("1 of 1 images on disk and verified")]);
  });

  it("also beside one that can, and when a service of another process lacks the key", async () => {
    const { cwd, data, run } = await workplace();
    const [model = ""] = findPreset("google")?.models.map(({ id }) => id) ?? [];
    const google = { preset: "google", models: [model] };
    const config = {
      providers: [google, { name: "drawings", type: "procedural", models: ["none"] }],
    };
    writeFileSync(join(cwd, CONFIG), JSON.stringify(config));
    const expectRefused = async () => {
      for (const args of asking) {
        const { code, stderr } = await run(...args, "--model", model, "--max-cost", "1");
        expect([args, code, stderr]).toEqual([
          args,
          3,
          expect.stringContaining(
            "google: the environment variable GEMINI_API_KEY is not set. Nothing was sent.",
          ),
        ]);
      }
    };
    await expectRefused();
    const parsed = parseConfig(config, "test");
    const deps = {
      clock: systemClock,
      simulate: parsed.simulate,
      decoding: new Decoding(),
      secret: () => null,
    };
    const providers = await createProviders(parsed.providers, deps);
    const service = await startTestService({ data, config: parsed, providers });
    vi.stubEnv("GEMINI_API_KEY", "a-key-of-this-command-only");
    await expectRefused();
    await service.close(0);
  });
});
