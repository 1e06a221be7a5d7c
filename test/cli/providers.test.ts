import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { recordCalls } from "../../src/domain/health/calls.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { type FakeUpstream, startFakeUpstream } from "../support/openai-upstream.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { openBeside } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const KEY = "fake-upstream-key-0123456789";
/** Naming the file is the consent to its address. */
const CONFIG = ["--config", "imgbatch.config.json"];
const NO_CALLS = { requests: 0, images: 0, errors: 0, may_be_paid_twice: 0, billed: 0, upstream_cost: 0 };
const WELL = { state: "ok", until: null, reason: null, failed_requests: 0, said: null, models: [] };

let data: string;
let upstream: FakeUpstream;
beforeEach(async () => {
  data = await tempDir();
  upstream = await startFakeUpstream();
  const providers = [
    { name: "own", type: "openai", baseUrl: upstream.url, apiKeyEnv: "OWN_KEY" },
    { name: "drawings", type: "procedural" },
  ];
  await writeFile(join(data, "imgbatch.config.json"), JSON.stringify({ providers }));
});

const env = () => cleanEnvironment({ OWN_KEY: KEY });
const runHere = async (key: string, ...args: string[]) => {
  vi.stubEnv("OWN_KEY", key);
  return runInProcess(["providers", "--data", data, ...CONFIG, ...args], { cwd: data }).finally(() =>
    vi.unstubAllEnvs(),
  );
};

describe("imgbatch providers", () => {
  it("[PROVIDERS-1] shows each configured provider without a data directory, and makes none", async () => {
    const directory = join(data, "new");
    const { code, stdout } = await runHere(KEY, "--json", "--data", directory);
    const sums = { last_success_at: null, last_hour: NO_CALLS, total: NO_CALLS };
    expect({ code, document: JSON.parse(stdout).providers }).toEqual({
      code: 0,
      document: [
        { name: "own", type: "openai", play_money: false, ...WELL, ...sums },
        { name: "drawings", type: "procedural", play_money: true, ...WELL, ...sums },
      ],
    });
    expect(existsSync(directory)).toBe(false);
    expect(upstream.requests).toEqual([]);
  });

  it("shows how many jobs are at work at an upstream", async () => {
    const providers = [{ name: "own", type: "native-batch", baseUrl: upstream.url, apiKeyEnv: "OWN_KEY" }];
    await writeFile(join(data, "imgbatch.config.json"), JSON.stringify({ providers }));
    const { stdout } = await runHere(KEY, "--json");
    expect(JSON.parse(stdout).providers).toMatchObject([{ name: "own", jobs: { at_work: 0 } }]);
    expect((await runHere(KEY)).stdout).toContain("0 at work");
    expect(upstream.requests).toEqual([]);
  });

  it("[PROVIDERS-1] shows the sums of the last hour and of all time, and the last success", async () => {
    const { stores } = await openBeside(data);
    const nowMs = Date.now();
    const call = {
      provider: "own",
      model: "m",
      isError: false,
      images: 1,
      isMaybePaidTwice: true,
      billedMicroUsd: 40_000,
      usage: { inputTokens: 3, outputTokens: 5, costMicroUsd: 30_000 },
    };
    await stores.write(async (tx) => {
      await recordCalls(tx, [{ ...call, images: 2 }], nowMs - 2 * 3_600_000);
      await recordCalls(tx, [call], nowMs - 59 * 60_000);
      await recordCalls(tx, [{ ...call, images: 0, isError: true, usage: null, billedMicroUsd: 0 }], nowMs);
    });
    const { stdout } = await runHere(KEY, "--json");
    expect(JSON.parse(stdout).providers[0]).toMatchObject({
      last_success_at: Math.floor((nowMs - 59 * 60_000) / 1000),
      last_hour: {
        requests: 2,
        images: 1,
        errors: 1,
        may_be_paid_twice: 2,
        billed: 0.04,
        upstream_cost: 0.03,
      },
      total: { requests: 3, images: 3, errors: 1, may_be_paid_twice: 3, billed: 0.08, upstream_cost: 0.06 },
    });
    const table = (await runHere(KEY)).stdout.split("\n");
    expect(table[0]).toMatch(/^provider +type +state +until +last success +requests 1h\/all/);
    expect(table[1]).toMatch(
      /^own +openai +ok +\d{4}-.*Z +2\/3 +1\/3 +1\/1 +\$0\.04\/\$0\.08 +\$0\.03\/\$0\.06 \(-25%\)$/,
    );
    expect(table[2]).toMatch(/^drawings +procedural +ok +0\/0 +0\/0 +0\/0 +drawn, free of charge +-\/-$/);
  });

  it("names the variable of a missing key, and does not ask the upstream", async () => {
    const reason = "the environment variable OWN_KEY is not set";
    const shown = await runHere("", "--json");
    expect(JSON.parse(shown.stdout).providers[0]).toMatchObject({ state: "disabled", until: null, reason });
    expect(shown.code).toBe(0);
    const probed = await runHere("", "--probe", "--json");
    expect(probed.code).toBe(3);
    expect(JSON.parse(probed.stdout).providers[0].probe).toEqual({ ok: false, error: reason });
    expect(upstream.requests).toEqual([]);
  });

  it("a probe asks for the models only, and exits by the worst trouble", async () => {
    const good = await runHere(KEY, "--probe", "--json");
    expect(JSON.parse(good.stdout).providers).toMatchObject([
      { name: "own", probe: { ok: true, error: null } },
      { name: "drawings", probe: { ok: true, error: null } },
    ]);
    expect(good.code).toBe(0);
    upstream.refusal = { status: 401, message: `The key ${KEY} is wrong.` };
    const wrong = await runHere(KEY, "--probe");
    expect(wrong.code).toBe(3);
    expect(wrong.stdout).toMatch(/^own .*failed: /m);
    expect(wrong.stdout + wrong.stderr).not.toContain(KEY);
    upstream.refusal = { status: 503, message: "Busy." };
    expect((await runHere(KEY, "--probe")).code).toBe(7);
    expect(new Set(upstream.requests)).toEqual(new Set(["GET /v1/models"]));
  });

  it("shows what a running service has learned, and a probe that passes makes its batches go on", async () => {
    const options = { cwd: data, env: env() };
    const admin = (...args: string[]) =>
      runInProcess(["admin", ...args, "--data", data, ...CONFIG], { cwd: data });
    await admin("accounts", "create", "default", "--balance", "5");
    const serve = ["serve", "--port", "0", "--data", data, "--log-level", "error", "--no-ui", ...CONFIG];
    const { url } = JSON.parse(await startNode([BIN, ...serve], options).line());
    const { key } = JSON.parse((await admin("keys", "create", "--json")).stdout);
    upstream.refusal = { status: 401, message: "Wrong key." };
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const ask = async (path: string, body?: object) => {
      const init = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
      return (await fetch(`${url}/v1/images/batches${path}`, init)).json();
    };
    const request = { model: "vendorx-3.1-flash-image", items: [{ custom_id: "fox", prompt: "a red fox" }] };
    const { id } = await ask("", request);
    await expect.poll(() => ask(`/${id}`)).toMatchObject({ waiting: { code: "PROVIDER_CREDENTIAL" } });

    // The batch says that it waits before the failed request is counted.
    const told = async () => JSON.parse((await runHere(KEY, "--json")).stdout).providers[0];
    await expect.poll(told).toMatchObject({
      state: "disabled",
      until: null,
      reason: expect.stringMatching(/./),
      last_hour: { requests: 1, errors: 1, images: 0 },
    });
    expect((await runHere(KEY)).stdout).toMatch(/^own .* disabled .*\n.*the upstream says: Wrong key\.$/m);
    const failed = await runHere(KEY, "--probe", "--json");
    expect(failed.code).toBe(3);
    expect(JSON.parse(failed.stdout).providers[0]).toMatchObject({ state: "disabled", probe: { ok: false } });

    upstream.refusal = null;
    vi.stubEnv("OWN_KEY", KEY);
    const doctor = await runInProcess(["doctor", "--data", data, ...CONFIG], { cwd: data }).finally(() =>
      vi.unstubAllEnvs(),
    );
    expect(doctor.stdout).toMatch(
      /^warn +upstream +own answers, but is disabled: .*\n +-> .*imgbatch providers --probe --data \S+ --config \S+$/m,
    );
    const passed = await runHere(KEY, "--probe", "--json");
    expect(passed.code).toBe(0);
    expect(JSON.parse(passed.stdout).providers[0]).toMatchObject({ ...WELL, probe: { ok: true } });
    await expect.poll(() => ask(`/${id}`)).toMatchObject({ status: "completed" });
  });

  it("believes the running service about keys, and warns when it has other providers", async () => {
    const options = { cwd: data, env: env() };
    await startNode(
      [BIN, "serve", "--port", "0", "--data", data, "--log-level", "error", "--no-ui", ...CONFIG],
      options,
    ).line();
    expect((await runHere(KEY)).stderr).toBe("");
    const keyless = await runHere("", "--json");
    expect(keyless.stderr).toBe("");
    expect(JSON.parse(keyless.stdout).providers[0]).toMatchObject({ ...WELL });
    const probed = await runHere("", "--probe", "--json");
    expect(probed.code).toBe(3);
    expect(JSON.parse(probed.stdout).providers[0]).toMatchObject({
      ...{
        ...WELL,
        probe: {
          ok: false,
          error: expect.stringContaining("OWN_KEY is not set here, and the running service has it"),
        },
      },
    });
    vi.stubEnv("OWN_KEY", "");
    const doctor = await runInProcess(["doctor", "--data", data, ...CONFIG], { cwd: data }).finally(() =>
      vi.unstubAllEnvs(),
    );
    expect([doctor.code, doctor.stdout]).toEqual([
      0,
      expect.stringMatching(
        /^ok +upstream +own was not asked, because only the running service has its key \(openai, /m,
      ),
    ]);
    upstream.refusal = { status: 401, message: "Wrong." };
    expect(JSON.parse((await runHere("another-key-0123456789", "--json")).stdout).providers[0]).toMatchObject(
      WELL,
    );
    const other = await runHere(KEY, "--upstream", "ollama", "--config", "none");
    expect(other.stdout).toContain("ollama");
    expect(other.stderr).toContain(
      `has other providers, own (openai, ${upstream.url}), drawings (procedural)`,
    );
  });
});
