import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { createCommandAdapter } from "../../../src/providers/command/provider.ts";
import { asItemProvider } from "../../../src/providers/upstream/provider.ts";
import { cleanEnvironment, startNode } from "../../support/processes.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { closing, entryOf, PNG } from "../../support/upstream-adapter.ts";
import { depsWith, imageRequest, never, providerError } from "../upstream/scripted-server.ts";
import { hastyClock, patientClock, programmed, runs } from "./programs.ts";

/** Starts two children that never end by themselves, one outside the program's group, and tells their ids and its own. */
const FAMILY = `
  const forever = 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000); process.send("up")';
  const pids = [process.pid];
  for (const detached of [false, true]) {
    const child = spawn(process.execPath, ["-e", forever], { detached, stdio: ["ignore", "inherit", "inherit", "ipc"] });
    await new Promise((done) => child.once("message", done));
    child.disconnect(); child.unref(); pids.push(child.pid);
  }
  tell("pids", pids);
`;
const HANG = `${FAMILY} process.on("SIGTERM", () => {}); setInterval(() => {}, 1000);`;

/** On other systems than Linux a process that has left the group cannot be found. */
const findable = (pids: number[]) => (process.platform === "linux" ? pids : pids.slice(0, 2));

/** A killed process is gone when it gets the processor once more. */
const expectGone = (pids: number[]) => expect.poll(() => findable(pids).filter(runs)).toEqual([]);

describe("the processes of a program", () => {
  it("children that it leaves end with the call, and do not hold it up", async () => {
    const { generate, told, left } = await programmed(`${FAMILY} make("a.png"); process.exit(0);`, {
      clock: hastyClock,
    });
    expect((await generate()).images).toEqual([PNG]);
    await expectGone(told("pids"));
    expect(left()).toEqual([]);
  });

  it("an abort ends a program that ignores SIGTERM, and its children, before the call rejects", async () => {
    const { generate, told, left } = await programmed(HANG, { clock: hastyClock });
    const abort = new AbortController();
    const call = generate({}, abort.signal).catch((error) => error);
    await expect.poll(() => told("pids")).not.toBeNull();
    const reason = new Error("enough");
    abort.abort(reason);
    expect(await call).toBe(reason);
    await expectGone(told("pids"));
    expect(left()).toEqual([]);
  });

  it("a program ends by itself when it is asked to", async () => {
    const asked = `
      process.on("SIGTERM", () => { tell("asked", true); process.exit(0); });
      setInterval(() => {}, 1000); tell("up", true);`;
    const { generate, told } = await programmed(asked, { clock: patientClock });
    const abort = new AbortController();
    const call = generate({}, abort.signal).catch((error) => error);
    await expect.poll(() => told("up")).toBe(true);
    abort.abort(new Error("enough"));
    await call;
    expect(told("asked")).toBe(true);
  });

  it("at the deadline all is ended, and the image may have been made", async () => {
    const { entry, deps, adapter, told } = await programmed(HANG, {
      clock: hastyClock,
      fields: { timeoutSeconds: 600 },
    });
    let late = () => {};
    let passedMs = 0;
    const passing = new Promise<void>((resolve) => {
      late = () => {
        passedMs = 600_000;
        resolve();
      };
    });
    // The time limit passes when the test says so; all other waiting is real.
    const clock = {
      ...deps.clock,
      monotonicMs: () => deps.clock.monotonicMs() + passedMs,
      sleep: (ms: number, signal?: AbortSignal) => (ms < 500_000 ? deps.clock.sleep(ms, signal) : passing),
    };
    const provider = asItemProvider(entry, adapter, { ...deps, clock });
    const call = providerError(provider.generate(imageRequest(), never));
    await expect.poll(() => told("pids")).not.toBeNull();
    late();
    expect(await call).toMatchObject({ code: "PROVIDER_TIMEOUT", trouble: "ambiguous" });
    await expectGone(told("pids"));
  });

  it("closing the provider ends running programs", async () => {
    const { adapter, generate, told, left } = await programmed(HANG, { clock: hastyClock });
    const call = generate().catch((error) => error.name);
    await expect.poll(() => told("pids")).not.toBeNull();
    await adapter.close();
    await expectGone(told("pids"));
    expect({ error: await call, left: left() }).toEqual({ error: "AbortError", left: [] });
  });

  it("a call that was aborted before starts nothing", async () => {
    const { adapter, told } = await programmed(`tell("up", true)`);
    const sent: string[] = [];
    const call = adapter.generate(imageRequest(), AbortSignal.abort(new Error("no")), () => sent.push("x"));
    await expect(call).rejects.toThrow("no");
    expect({ sent, up: told("up") }).toEqual({ sent: [], up: null });
  });

  it("after kill -9 of the service its programs end and their files go", async () => {
    const { home, script, told, left } = await programmed(HANG);
    const service = startNode([resolve(import.meta.dirname, "killed-caller.mjs"), script], {
      cwd: home,
      env: cleanEnvironment({ TMPDIR: join(home, "temp") }),
    });
    await expect.poll(() => told("pids")).not.toBeNull();
    expect(left()).toHaveLength(1);
    service.child.kill("SIGKILL");
    await service.exited;
    await expect.poll(() => [...findable(told("pids")).filter(runs), ...left()]).toEqual([]);
  });
});

describe("the start of a program", () => {
  it("a program that cannot be started is unreachable, and is named; the probe finds out without a run", async () => {
    const home = await tempDir();
    await writeFile(join(home, "plain"), "");
    await mkdir(join(home, "folder"));
    await writeFile(join(home, "good"), "#!/bin/sh\ntouch ran\n", { mode: 0o755 });
    await chmod(join(home, "good"), 0o755);
    const deps = depsWith({ PATH: `/none:${home}` });
    const adapterOf = (file: string) =>
      closing(createCommandAdapter(entryOf("command", { argv: [file] }), deps));
    for (const file of [
      join(home, "plain"),
      join(home, "folder"),
      "/none/at-all",
      "no-such-program-here",
      "plain",
    ]) {
      const adapter = adapterOf(file);
      for (const call of [
        () => adapter.generate(imageRequest(), never, () => {}),
        () => adapter.probe(never),
      ])
        expect(await providerError(call())).toMatchObject({
          trouble: "unreachable",
          message: expect.stringContaining(`The program cannot be started. ${file}: `),
        });
    }
    for (const file of ["good", join(home, "good")]) await adapterOf(file).probe(never);
  });
});
