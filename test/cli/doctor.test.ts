import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import type { Output } from "../../src/cli/command.ts";
import {
  checkDirectory,
  checkNativeParts,
  checkNode,
  checkOwner,
  checkSecrecy,
  checkService,
} from "../../src/cli/commands/doctor.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { acquireDataLockPatiently } from "../../src/storage/data-lock.ts";
import { createCli } from "../support/cli.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { FAKE_KEY, startFakeService } from "../support/fake-service.ts";
import { startFakeUpstream } from "../support/openai-upstream.ts";
import { cleanEnvironment, imgbatch } from "../support/processes.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

/** What `checkService` needs, with a clock that is wrong by some ms. */
const around = (offMs = 0) => ({
  clock: { ...systemClock, nowMs: () => Date.now() + offMs },
  signal: new AbortController().signal,
  output: { detail: () => {} } as unknown as Output,
});
const MIB = 1024 * 1024;
/** Naming the file is the consent to its addresses. */
const DOCTOR = ["doctor", "--config", "imgbatch.config.json"];

describe("imgbatch doctor", () => {
  it("[DOCTOR-1] finds nothing on a sound machine, in lines and as one document", async () => {
    const dir = await tempDir();
    const env = cleanEnvironment({ IMGBATCH_DATA: join(dir, "data") });
    const plain = await imgbatch(["doctor"], { cwd: dir, env });
    expect({ code: plain.code, failed: /^fail/m.test(plain.stdout) }).toEqual({ code: 0, failed: false });
    const { stdout } = await runInProcess(["doctor", "--json", "--data", join(dir, "data")], { cwd: dir });
    const { findings, exit_code } = JSON.parse(stdout);
    expect(exit_code).toBe(0);
    const checks = ["node", "better-sqlite3", "sharp", "config", "output", "data", "service"];
    expect(findings.map(({ check }: { check: string }) => check)).toEqual(checks);
  });

  it("tells a wrong key, a missing key and an unreachable service apart, and bills nothing", async () => {
    const cli = await createCli();
    expect((await cli.here(["doctor"], { env: {} })).code).toBe(0);
    cli.fake.fault(/models/, { status: 401, body: { error: { code: "INVALID_API_KEY", message: "who?" } } });
    const wrong = await cli.here(["doctor"], { env: {} });
    expect(wrong.code).toBe(3);
    expect(wrong.stdout).toMatch(/^fail key +who\?\n +-> check IMGBATCH_API_KEY/m);
    expect((await cli.here(["doctor"], { env: { IMGBATCH_API_KEY: "" } })).code).toBe(3);
    const away = await cli.here(["doctor", "--base-url", "http://127.0.0.1:1", "--json"], { env: {} });
    expect(away.code).toBe(7);
    expect(away.json().findings).toContainEqual(expect.objectContaining({ check: "service", state: "fail" }));
    expect(cli.fake.count(/^POST/)).toBe(0);
    expect(away.stdout + wrong.stdout).not.toContain(FAKE_KEY);
  });

  it("sees a clock that is wrong by the service's", async () => {
    const fake = await startFakeService();
    try {
      const service = { baseUrl: fake.url, apiKey: FAKE_KEY, isLocal: true };
      const clockOf = async (offMs: number) => {
        const findings = await checkService(service, around(offMs));
        return findings.find(({ check }) => check === "clock");
      };
      expect(await clockOf(0)).toMatchObject({ state: "ok" });
      expect((await clockOf(600_000))?.message).toContain("10 min ahead of");
      expect((await clockOf(-600_000))?.message).toContain("behind");
    } finally {
      await fake.close();
    }
  });

  it("names what a service that is not ready says", async () => {
    const { url, credentials } = await startTestService({ workers: true });
    const found = await checkService({ baseUrl: url, apiKey: credentials.api_key, isLocal: true }, around());
    expect(found.map(({ check, state }) => `${check} ${state}`)).toEqual([
      "service ok",
      "key ok",
      "clock ok",
    ]);
    const cli = await createCli();
    cli.fake.fault(/readyz/, { status: 503, body: { problems: ["no disk"] } });
    const { code, stdout } = await cli.here(["doctor"], { env: {} });
    expect(code).toBe(7);
    expect(stdout).toContain("is not ready: no disk");
  });

  it("sees a full or nearly full disk, and a directory that is none", async () => {
    const dir = await tempDir();
    const stateOf = async (free: number) =>
      (await checkDirectory("data", join(dir, "a/b"), async () => free))[0];
    expect(await stateOf(50 * MIB)).toMatchObject({ state: "fail", exit: "saving" });
    expect(await stateOf(500 * MIB)).toMatchObject({ state: "warn" });
    expect(await stateOf(50_000 * MIB)).toMatchObject({ state: "ok" });
    await writeFile(join(dir, "file"), "");
    const { code, stdout } = await runInProcess(["doctor", "--data", join(dir, "file")], { cwd: dir });
    expect(code).toBe(9);
    expect(stdout).toContain("it is a file");
  });

  it("sees a data directory whose owner does not answer, a key that others can read, and files that they can replace", async () => {
    const data = await tempDir();
    expect(await checkOwner(data, false)).toEqual([]);
    const release = await acquireDataLockPatiently(data, systemClock);
    try {
      expect(await checkOwner(data, false)).toMatchObject([{ state: "fail", exit: "conflict" }]);
      expect(await checkOwner(data, true)).toEqual([]);
      const { code } = await runInProcess(["doctor", "--data", data], { cwd: data });
      expect(code).toBe(6);
    } finally {
      release();
    }
    expect(await checkOwner(data, false)).toEqual([]);
    await writeFile(join(data, "credentials.json"), "{}", { mode: 0o600 });
    expect(await checkSecrecy(data)).toEqual([]);
    await chmod(join(data, "credentials.json"), 0o644);
    expect(await checkSecrecy(data)).toMatchObject([{ check: "credentials", state: "warn" }]);
    await chmod(join(data, "credentials.json"), 0o600);
    await chmod(data, 0o770);
    expect(await checkSecrecy(data)).toMatchObject([{ check: "data", state: "warn" }]);
  });

  it("sees an old Node, parts that do not load, and a wrong configuration", async () => {
    expect(checkNode("20.18.3", "20.19")).toMatchObject({ state: "fail", exit: "internal" });
    for (const version of ["20.19.0", "22.1.0"]) expect(checkNode(version, "20.19").state).toBe("ok");
    expect(checkNode(process.versions.node).state).toBe("ok");
    const broken = async () => Promise.reject(new Error("wrong ELF class\nmore"));
    const states = async (isEmbedded: boolean) =>
      (await checkNativeParts(isEmbedded, broken)).map(({ state, message }) => `${state} ${message}`);
    expect(await states(true)).toEqual(Array(2).fill("fail does not load: wrong ELF class"));
    expect(await states(false)).toEqual(Array(2).fill("warn does not load: wrong ELF class"));
    const dir = await tempDir();
    await mkdir(join(dir, "data"));
    await writeFile(join(dir, "imgbatch.config.json"), '{"sever": {}}');
    const { code, stdout } = await runInProcess(["doctor"], { cwd: dir });
    expect(code).toBe(2);
    expect(stdout).toContain("sever");
  });

  it("asks each upstream for free, and names the cheapest step: the key first", async () => {
    const dir = await tempDir();
    const upstream = await startFakeUpstream();
    const own = { name: "own", type: "openai", baseUrl: upstream.url, apiKeyEnv: "OWN_KEY" };
    const configure = (...providers: object[]) =>
      writeFile(join(dir, "imgbatch.config.json"), JSON.stringify({ providers }));
    const doctor = async (key: string) => {
      vi.stubEnv("OWN_KEY", key);
      const here = runInProcess([...DOCTOR, "--data", join(dir, "data")], { cwd: dir });
      const { code, stdout } = await here.finally(() => vi.unstubAllEnvs());
      const at = stdout.indexOf("\n", stdout.indexOf("data  ")) + 1;
      return { code, text: stdout.slice(at).replaceAll(/ +/g, " ") };
    };
    await configure(own, { name: "drawings", type: "procedural" });
    const missing = await doctor("");
    expect(missing.code).toBe(3);
    expect(missing.text).toMatch(
      /^fail upstream own: the environment variable OWN_KEY is not set\n -> export OWN_KEY=<your key>\n/,
    );
    expect(upstream.requests).toEqual([]);

    const key = "fake-upstream-key-0123456789";
    const well = await doctor(key);
    expect(well).toMatchObject({
      code: 0,
      text: expect.stringMatching(/^ok upstream own answers \(openai, http/),
    });
    upstream.refusal = { status: 401, message: "Wrong." };
    const wrong = await doctor(key);
    expect(wrong.code).toBe(3);
    expect(wrong.text).toContain("-> check the key in OWN_KEY");
    expect(wrong.text).toMatch(/^fail upstream own: does not accept the key/);
    upstream.refusal = { status: 404, message: "No." };
    expect((await doctor(key)).text).toContain(`-> check that ${upstream.url} and the models`);
    upstream.refusal = { status: 503, message: "Busy." };
    expect(await doctor(key)).toMatchObject({
      code: 7,
      text: expect.stringContaining("-> wait, and try again"),
    });
    expect(new Set(upstream.requests)).toEqual(new Set(["GET /v1/models"]));

    const other = await startFakeUpstream();
    await configure(own, { name: "other", type: "openai", baseUrl: other.url });
    const both = await doctor(key);
    expect(both.code).toBe(0);
    expect(both.text).toMatch(/^warn upstream own: [\s\S]*^ok upstream other answers/m);
  });

  it("[DOCTOR-2] says of which upstreams a group charges less for a batch than they bill, and the setting that mends it", async () => {
    const dir = await tempDir();
    const upstream = await startFakeUpstream();
    const own = { type: "openai", baseUrl: upstream.url };
    const providers = [
      { name: "drawings", type: "procedural" },
      { ...own, name: "paid" },
      { ...own, name: "free", free: true },
      { ...own, name: "now", for: ["realtime"] },
      { ...own, name: "jobs", type: "openai-batch" },
      { ...own, name: "dear", rateMultiplier: 2 },
    ];
    const pricesOf = async (config: object) => {
      await writeFile(join(dir, "imgbatch.config.json"), JSON.stringify(config));
      const args = [...DOCTOR, "--data", join(dir, "data"), "--json"];
      const { findings } = JSON.parse((await runInProcess(args, { cwd: dir })).stdout);
      return findings.filter(({ check }: { check: string }) => check === "price");
    };
    const mended = '"groups": [{"name": "default", "batchDiscount": 1}]';
    expect(await pricesOf({ providers })).toEqual([
      {
        check: "price",
        state: "warn",
        message: "the group default charges half of what paid bills for an image of a batch",
        advice: `to charge all of it, give the group a batchDiscount of 1: ${mended}`,
      },
    ]);
    expect(await pricesOf({ providers, ...JSON.parse(`{${mended}}`) })).toEqual([]);
    expect(await pricesOf({ providers: [{ preset: "xai", ...own }] })).toEqual([]);
  });

  it("checks the upstream of --upstream, without a file, and only for the service inside", async () => {
    const dir = await tempDir();
    const named = ["doctor", "--data", join(dir, "data"), "--upstream", "xai"];
    vi.stubEnv("XAI_API_KEY", "");
    const { code, stdout } = await runInProcess(named, { cwd: dir });
    expect([code, stdout]).toEqual([
      3,
      expect.stringContaining("xai: the environment variable XAI_API_KEY is not set"),
    ]);
    const elsewhere = await runInProcess([...named, "--base-url", "https://images.example.com"], {
      cwd: dir,
    });
    expect([elsewhere.code, elsewhere.stderr]).toEqual([
      2,
      expect.stringContaining("--upstream is for the service inside imgbatch"),
    ]);
  });

  it("reports a damaged database instead of the upstreams", async () => {
    const dir = await tempDir();
    const upstream = await startFakeUpstream();
    const providers = [{ name: "own", type: "openai", baseUrl: upstream.url }];
    await writeFile(join(dir, "imgbatch.config.json"), JSON.stringify({ providers }));
    await writeFile(
      join(dir, "imgbatch.db"),
      "this is no database, and long enough for a header of one".repeat(99),
    );
    const { code, stdout } = await runInProcess([...DOCTOR, "--data", dir], { cwd: dir });
    expect(code).toBe(9);
    expect(stdout).toMatch(/^fail +data +.*damaged/m);
  });
});
