import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  checkDirectory,
  checkOwner,
  checkSecrecy,
} from "../../../src/cli/commands/doctor/check-directory.ts";
import { checkNativeParts, checkNode } from "../../../src/cli/commands/doctor/check-program.ts";
import { checkService } from "../../../src/cli/commands/doctor/check-service.ts";
import { fail, ok, warn, worstExitCode } from "../../../src/cli/commands/doctor/finding.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { acquireDataLockPatiently } from "../../../src/storage/data-lock.ts";
import { createCli } from "../../support/cli.ts";
import { FAKE_KEY, startFakeService } from "../../support/fake-service.ts";
import { cleanEnvironment, imgbatch } from "../../support/processes.ts";
import { startTestService } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const never = new AbortController().signal;
const MIB = 1024 * 1024;

describe("imgbatch doctor", () => {
  it("[DOCTOR-1] finds nothing on a sound machine, in lines and as one document", async () => {
    const dir = await tempDir();
    const env = cleanEnvironment({ IMGBATCH_DATA: join(dir, "data") });
    const plain = await imgbatch(["doctor"], { cwd: dir, env });
    expect({ code: plain.code, failed: /^fail/m.test(plain.stdout) }).toEqual({ code: 0, failed: false });
    const { findings, exit_code } = JSON.parse(
      (await imgbatch(["doctor", "--json"], { cwd: dir, env })).stdout,
    );
    expect(exit_code).toBe(0);
    const checks = ["node", "better-sqlite3", "sharp", "config", "output", "data", "service"];
    expect(findings.map(({ check }: { check: string }) => check)).toEqual(checks);
  });

  it("[DOCTOR-1] ends by the worst finding; warnings count for nothing", () => {
    expect(worstExitCode([ok("a", ""), warn("b", "", "")])).toBe(0);
    const findings = [fail("a", "temporary", "", ""), fail("b", "auth", "", ""), fail("c", "saving", "", "")];
    expect(worstExitCode(findings)).toBe(3);
    expect(worstExitCode(findings.slice(0, 1))).toBe(7);
  });

  it("[DOCTOR-2] tells a wrong key, a missing key and an unreachable service apart, and bills nothing", async () => {
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

  it("[DOCTOR-2] sees a clock that is wrong by the service's", async () => {
    const fake = await startFakeService();
    try {
      const service = { baseUrl: fake.url, apiKey: FAKE_KEY, isLocal: true };
      const clockOf = async (offMs: number) => {
        const findings = await checkService(service, never, () => Date.now() + offMs);
        return findings.find(({ check }) => check === "clock");
      };
      expect(await clockOf(0)).toMatchObject({ state: "ok" });
      expect((await clockOf(600_000))?.message).toContain("10 min ahead of");
      expect((await clockOf(-600_000))?.message).toContain("behind");
    } finally {
      await fake.close();
    }
  });

  it("[DOCTOR-2] names what a service that is not ready says", async () => {
    const { url, credentials } = await startTestService({ workers: true });
    const found = await checkService({ baseUrl: url, apiKey: credentials.api_key, isLocal: true }, never);
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

  it("[DOCTOR-3] sees a full or nearly full disk, and a directory that is none", async () => {
    const dir = await tempDir();
    const stateOf = async (free: number) =>
      (await checkDirectory("data", join(dir, "a/b"), async () => free))[0];
    expect(await stateOf(50 * MIB)).toMatchObject({ state: "fail", exit: "saving" });
    expect(await stateOf(500 * MIB)).toMatchObject({ state: "warn" });
    expect(await stateOf(50_000 * MIB)).toMatchObject({ state: "ok" });
    await writeFile(join(dir, "file"), "");
    const env = cleanEnvironment({ IMGBATCH_DATA: join(dir, "file") });
    const { code, stdout } = await imgbatch(["doctor"], { cwd: dir, env });
    expect(code).toBe(9);
    expect(stdout).toContain("it is a file");
  });

  it("[DOCTOR-3] sees a data directory whose owner does not answer, a key that others can read, and files that they can replace", async () => {
    const data = await tempDir();
    expect(await checkOwner(data, false)).toEqual([]);
    const release = await acquireDataLockPatiently(data, systemClock);
    try {
      expect(await checkOwner(data, false)).toMatchObject([{ state: "fail", exit: "conflict" }]);
      expect(await checkOwner(data, true)).toEqual([]);
      const { code } = await imgbatch(["doctor"], { env: cleanEnvironment({ IMGBATCH_DATA: data }) });
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

  it("[DOCTOR-4] sees an old Node, parts that do not load, and a wrong configuration", async () => {
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
    const { code, stdout } = await imgbatch(["doctor"], { cwd: dir });
    expect(code).toBe(2);
    expect(stdout).toContain("sever");
  });
});
