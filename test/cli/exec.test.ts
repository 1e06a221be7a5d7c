import { existsSync, readdirSync } from "node:fs";
import { mkdir, readFile, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { runChild } from "../../src/cli/commands/exec.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { acquireDataLockPatiently } from "../../src/storage/data-lock.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { BIN, cleanEnvironment, imgbatch, type Running, startNode } from "../support/processes.ts";
import { needTerminal, startOnTerminal } from "../support/real-terminal.ts";
import { tempDir } from "../support/temp-dir.ts";

/** Directories of passing services go where this says, so that a test sees its own only. */
const inDir = (temp: string) => ({ env: cleanEnvironment({ TMPDIR: temp }) });
const node = (script: string) => ["--", process.execPath, "-e", script];

async function exec(...args: string[]) {
  const temp = await tempDir();
  const exit = await imgbatch(["exec", ...args], inDir(temp));
  return { ...exit, left: readdirSync(temp) };
}

/** The same inside the test's own process, for a command that writes nothing. */
async function execHere(...args: string[]) {
  const temp = await tempDir();
  vi.stubEnv("TMPDIR", temp);
  const exit = await runInProcess(["exec", ...args], { cwd: temp });
  return { ...exit, left: readdirSync(temp) };
}

/** Resolves when the process is gone; the test times out when it stays. */
async function gone(pid: number): Promise<void> {
  for (;;) {
    // An ended process whose parent did not look yet is no running one.
    const state = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ") Z");
    if (state.split(") ")[1]?.startsWith("Z")) return;
    await new Promise((done) => setTimeout(done, 20));
  }
}

describe("imgbatch exec", () => {
  it("gives the command a service that works, in the variables of this program and of the vendors' SDKs", async () => {
    const told = join(await tempDir(), "told.json");
    const script = `
      import { writeFileSync } from "node:fs";
      const e = process.env;
      const url = e.IMGBATCH_BASE_URL;
      const ready = await fetch(url + "/readyz");
      const headers = { authorization: "Bearer " + e.IMGBATCH_API_KEY };
      const models = await fetch(url + "/v1/images/batches/models", { headers });
      const faults = await fetch(url + "/imgbatch/test/faults", { headers });
      writeFileSync(${JSON.stringify(told)}, JSON.stringify({
        ready: ready.status, models: models.status, faults: await faults.json(), loopback: new URL(url).hostname,
        openai: e.OPENAI_BASE_URL === url + "/v1" && e.OPENAI_API_KEY === e.IMGBATCH_API_KEY,
        gemini: e.GOOGLE_GEMINI_BASE_URL === url
          && e.GEMINI_API_KEY === e.IMGBATCH_API_KEY && e.GOOGLE_API_KEY === undefined,
        proxy: e.NO_PROXY,
      }));`;
    vi.stubEnv("GOOGLE_API_KEY", "a-key-of-the-user");
    const { code, left } = await execHere("--", process.execPath, "--input-type=module", "-e", script);
    expect(JSON.parse(await readFile(told, "utf8"))).toEqual({
      ready: 200,
      models: 200,
      faults: { faults: [] },
      loopback: "127.0.0.1",
      openai: true,
      gemini: true,
      proxy: "127.0.0.1",
    });
    expect({ code, left }).toEqual({ code: 0, left: [] });
  });

  it("[EXEC-3] adds nothing to the command's streams, ends with its code, and its arguments stay its own", async () => {
    const script = `process.stdout.write(process.argv.slice(1).join()); process.stderr.write("err"); process.exitCode = 42`;
    const { stdout, stderr, code } = await exec(...node(script), "--", "--json", "-v");
    expect({ stdout, stderr, code }).toEqual({ stdout: "--json,-v", stderr: "err", code: 42 });
  });

  it("[EXEC-3] ends with 128 and the signal after a command that a signal ended", async () => {
    expect((await execHere("--", "sh", "-c", "kill -9 $$")).code).toBe(137);
  });

  it("[EXEC-3] tells a command that is not there from one that cannot be run", async () => {
    const dir = await tempDir();
    await writeFile(join(dir, "plain"), "");
    await writeFile(join(dir, "script"), "#!/no/such/shell\n", { mode: 0o755 });
    const startOf = (file: string) => {
      const lines: string[] = [];
      const onProblem = (line: string) => void lines.push(line);
      const child = runChild([file], {
        cwd: dir,
        env: {},
        mark: "m",
        clock: systemClock,
        isOnTerminal: false,
        onProblem,
      });
      return child.ended.then((code) => `${code} ${lines.join()}`);
    };
    expect(await startOf("./plain")).toBe("126 ./plain: cannot be run (no permission)");
    expect(await startOf("./script")).toMatch(/^126 .*first line/);
    expect(await startOf(dir)).toMatch(/^126 .*it is a directory/);
    for (const file of ["./none", "./plain/none", ""])
      expect(await startOf(file)).toMatch(/^127 .*no such command$/);
  });

  it("leaves no process behind, not even one that left the group", async () => {
    const script = `
      const { spawn } = require("node:child_process");
      const forever = ["-e", "process.on('SIGTERM', () => {}); setInterval(() => {}, 1000); console.log(process.pid)"];
      let started = 0;
      for (const detached of [false, true])
        spawn(process.execPath, forever, { detached, stdio: ["ignore", "pipe", "ignore"] })
          .stdout.on("data", (text) => { process.stdout.write(text); if (++started === 2) process.exit(0); });`;
    const { code, stdout, left } = await exec(...node(script));
    expect({ code, left }).toEqual({ code: 0, left: [] });
    const pids = stdout.trim().split("\n").map(Number);
    expect(pids).toHaveLength(2);
    for (const pid of process.platform === "linux" ? pids : pids.slice(0, 1)) await gone(pid);
  });

  const waiting = (script: string, temp: string): Running =>
    startNode(
      [BIN, "exec", ...node(`${script}; setInterval(() => {}, 1000); console.log(process.pid)`)],
      inDir(temp),
    );

  it("passes a signal on that comes as soon as the command has started", async () => {
    const script = "trap 'exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.05; done";
    const { code, left } = await exec("--", "sh", "-c", script);
    expect({ code, left }).toEqual({ code: 9, left: [] });
  });

  it.each(["SIGTERM", "SIGINT"] as const)(
    "passes on every %s and waits: as long as the command lives, it decides",
    async (signal) => {
      const temp = await tempDir();
      const script = `
        let left = 3;
        for (const s of ['SIGTERM', 'SIGINT'])
          process.on(s, () => console.log(s) || --left || setTimeout(() => process.exit(5), 50))`;
      const running = waiting(script, temp);
      await running.line();
      for (let i = 0; i < 3; i++) {
        running.child.kill(signal);
        expect(await running.line()).toBe(signal);
      }
      expect(await running.exited).toMatchObject({ code: 5, signal: null, stderr: "" });
      expect(readdirSync(temp)).toEqual([]);
    },
  );

  it("even when it is killed, the command ends and the directory goes", async () => {
    const temp = await tempDir();
    const running = waiting("", temp);
    const pid = Number(await running.line());
    expect(readdirSync(temp)).toHaveLength(1);
    running.child.kill("SIGKILL");
    await running.exited;
    await gone(pid);
    await expect.poll(() => readdirSync(temp)).toEqual([]);
  });

  it("a start removes the directories of commands that were killed, and nothing else", async () => {
    const temp = await tempDir();
    const hourAgo = new Date(Date.now() - 3_600_000);
    const make = async (name: string, when: Date) => {
      await mkdir(join(temp, name));
      await writeFile(join(temp, name, "lock.db"), "");
      await utimes(join(temp, name), when, when);
      return join(temp, name);
    };
    await make("imgbatch-exec-dead01", hourAgo);
    await make("imgbatch-serve-dead02", hourAgo);
    const kept = [
      "imgbatch-exec-young1",
      "imgbatch-exec-owned1",
      "imgbatch-exec-notours1",
      "imgbatch-exec-link01",
    ];
    await make("imgbatch-exec-young1", new Date());
    const release = await acquireDataLockPatiently(await make("imgbatch-exec-owned1", hourAgo), systemClock);
    await utimes(join(temp, "imgbatch-exec-owned1"), hourAgo, hourAgo);
    await symlink(await make("imgbatch-exec-notours1", hourAgo), join(temp, "imgbatch-exec-link01"));
    try {
      vi.stubEnv("TMPDIR", temp);
      expect((await runInProcess(["exec", "--", "true"], { cwd: temp })).code).toBe(0);
    } finally {
      vi.unstubAllEnvs();
      release();
    }
    expect(readdirSync(temp).sort()).toEqual(kept.sort());
  });

  it("--vendor serves a client of the vendor, which knows the address and the key alone", async () => {
    const script = `
      const { GOOGLE_GEMINI_BASE_URL: base, GEMINI_API_KEY: key } = process.env;
      const url = base + "/v1beta/models/gemini-2.5-flash-image:generateContent";
      const body = JSON.stringify({ contents: [{ parts: [{ text: "a red fox" }] }] });
      const headers = { "content-type": "application/json", "x-goog-api-key": key };
      const answer = await fetch(url, { method: "POST", headers, body });
      const { candidates } = await answer.json();
      process.exit(answer.status === 200 && candidates[0].content.parts.some((part) => part.inlineData) ? 42 : 1);`;
    const { code } = await execHere("--vendor", "google", ...node(`(async () => {${script}})()`));
    expect(code).toBe(42);
    const wrong = await runInProcess(["serve", "--vendor", "gogle"], { cwd: await tempDir() });
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("Did you mean google?")]);
  });

  it("takes the options of serve, and keeps a data directory that was named", async () => {
    const data = join(await tempDir(), "kept");
    const { code, left } = await execHere("--data", data, "--simulate", "latency=1ms,seed=3", "--", "true");
    expect({ code, left }).toEqual({ code: 0, left: [] });
    expect(existsSync(join(data, "imgbatch.db"))).toBe(true);
    expect(existsSync(join(data, "server.json"))).toBe(false);
    const wrong = ["exec", "--data", data, "--simulate", "speed=1", ...node("")];
    expect((await runInProcess(wrong, { cwd: data })).code).toBe(2);
  });
});

describe("imgbatch exec on a real terminal", () => {
  beforeEach(needTerminal);

  it("leaves the keys to the command, which gets each signal of the terminal once", async () => {
    const script = `
      const seen = [];
      for (const s of ["SIGINT", "SIGQUIT"]) process.on(s, () => { seen.push(s); console.log("seen " + seen.length); });
      process.stdin.on("data", (text) => { console.log(seen.join() + " then " + text); process.exit(6); });
      console.log("ready");`;
    const terminal = startOnTerminal([BIN, "exec", ...node(script)], { TMPDIR: await tempDir() });
    await terminal.until(/ready/);
    for (const [i, key] of ["\x03", "\x03", "\x1c", "\x03"].entries()) {
      terminal.press(key);
      await terminal.until(new RegExp(`seen ${i + 1}`));
    }
    terminal.press("go on\r");
    await terminal.until(/SIGINT,SIGINT,SIGQUIT,SIGINT then go on/);
    expect(await terminal.ended).toEqual({ code: 6, isCooked: true });
  });
});
