import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeEach, describe, expect, it } from "vitest";
import { runInProcess } from "../support/cli-in-process.ts";
import { gate } from "../support/gate.ts";
import { listening } from "../support/listening.ts";
import { BIN } from "../support/processes.ts";
import { needTerminal, type RealTerminal, startOnTerminal } from "../support/real-terminal.ts";
import { items, MODEL, startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const CRASHING = fileURLToPath(new URL("../support/crashing-view.mjs", import.meta.url));
const ENTER = "\x1b[?1049h";
const LEAVE = "\x1b[?1049l";
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences begin with one
const COLOR = /\x1b\[[0-9;]*(?:[34]\d|9\d)[0-9;]*m/;

async function serve(env: Record<string, string> = {}, ...more: string[]): Promise<RealTerminal> {
  return startOnTerminal([BIN, "serve", "--port", "0", "--data", await tempDir(), ...more], env);
}

/** The terminal is as it was before: first screen, cursor, lines; and nothing was lost on the way. */
async function expectRestored(terminal: RealTerminal): Promise<number> {
  const { code, isCooked } = await terminal.ended;
  const all = terminal.written();
  expect(all.split(ENTER)).toHaveLength(2);
  expect(all.split(LEAVE)).toHaveLength(2);
  expect(all.lastIndexOf("\x1b[?25h")).toBeGreaterThan(all.lastIndexOf("\x1b[?25l"));
  expect(all.indexOf(LEAVE)).toBeGreaterThan(all.lastIndexOf("\x1b[?25l"));
  expect(isCooked).toBe(true);
  expect(all).not.toContain("\x1b[3J");
  return code;
}

describe("the live view on a real terminal", () => {
  beforeEach(needTerminal);

  it("[VIEW-1] is drawn again for another size of the window, and gives the terminal back after q", async () => {
    const terminal = await serve();
    await terminal.until(/q.*quit/s);
    expect(terminal.written().split("\x1b[2J")).toHaveLength(2);
    expect(terminal.written()).toMatch(COLOR);
    const before = terminal.written().length;
    terminal.resize(120, 30);
    await terminal.until(/\[30;1H/, before);
    expect(terminal.written().split("\x1b[2J")).toHaveLength(3);
    terminal.press("?");
    await terminal.until(/PgUp/);
    terminal.press("x");
    await terminal.until(/No batches yet/, terminal.written().lastIndexOf("PgUp"));
    terminal.press("q");
    expect(await expectRestored(terminal)).toBe(0);
    expect(terminal.written().split("\x1b[2J")).toHaveLength(3);
  });

  it.each(["Ctrl-C", "SIGTERM"])("[VIEW-1] gives the terminal back after %s", async (how) => {
    const terminal = await serve({ NO_COLOR: "1" });
    await terminal.until(/q.*quit/s);
    if (how === "SIGTERM") terminal.signal(how);
    else terminal.press("\x03");
    expect(await expectRestored(terminal)).toBe(0);
    // Without colours, but not without the marks of bold and inverse.
    expect(terminal.written()).not.toMatch(COLOR);
  });

  it("after Ctrl-C waits for requests that are paid and says so; the next Ctrl-C ends it at once", async () => {
    const cwd = await tempDir();
    const came = gate();
    const upstream = createServer((request) => void request.resume().on("end", came.open));
    const baseUrl = `${await listening(upstream)}/v1`;
    const provider = { name: "card", type: "openai", baseUrl, models: ["*"], rateMultiplier: 0 };
    const config = join(cwd, "config.json");
    writeFileSync(config, JSON.stringify({ providers: [provider] }));
    writeFileSync(join(cwd, "p.jsonl"), JSON.stringify({ prompt: "a fox" }));
    const where = ["--config", config, "--data", join(cwd, "data")];
    const terminal = startOnTerminal([BIN, "serve", "--port", "0", ...where]);
    await terminal.until(/q.*quit/s);
    const submit = ["submit", "p.jsonl", "-o", "out", "--detach", "--max-cost", "1"];
    expect(await runInProcess([...submit, ...where], { cwd })).toMatchObject({ code: 0 });
    await came.promise;
    terminal.press("\x03");
    await terminal.until(/stopping: waiting for 1 request that is paid; Ctrl-C abandons it/);
    terminal.press("\x03");
    expect(await expectRestored(terminal)).toBe(130);
  });

  it("[VIEW-1] restores the terminal before a crash is reported, so that it can be read", async () => {
    const terminal = startOnTerminal([CRASHING]);
    await terminal.until(/q.*quit/s);
    terminal.press("p");
    expect(await expectRestored(terminal)).not.toBe(0);
    const all = terminal.written();
    expect(all.indexOf("the crash of the test")).toBeGreaterThan(all.indexOf(LEAVE));
  });

  it("[VIEW-1] is left out for --no-ui: lines of log instead", async () => {
    const terminal = await serve({}, "--no-ui");
    await terminal.until(/imgbatch is ready at http/);
    await terminal.until(/web console.*#code=[\w-]{43}/);
    terminal.signal("SIGTERM");
    await terminal.until(/stopping/);
    expect((await terminal.ended).code).toBe(0);
    expect(terminal.written()).not.toContain("\x1b[?");
  });

  it("watch shows several batches, leaves a line for each, and ends with the outcome's code", async () => {
    const service = await startTestService();
    await service.setPaused(true);
    const ids: string[] = [];
    for (const task_name of ["foxes", "狐狸"]) {
      ids.push((await service.submit({ model: MODEL, task_name, items: items(2) })).id);
    }
    const terminal = startOnTerminal([BIN, "watch", ...ids, "--data", service.data, "--interval", "200ms"]);
    await terminal.until(/the embedded service/);
    await terminal.until(/foxes/);
    await terminal.until(/狐狸/);
    await service.setPaused(false);
    expect(await expectRestored(terminal)).toBe(0);
    const left = terminal.written().slice(terminal.written().indexOf(LEAVE));
    for (const id of ids) expect(left).toContain(id);
    expect(left).toContain("completed");
  });

  it("quitting watch ends nothing and is a success", async () => {
    const service = await startTestService();
    await service.setPaused(true);
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const terminal = startOnTerminal([BIN, "watch", id, "--data", service.data, "--interval", "200ms"]);
    await terminal.until(/q.*quit/s);
    terminal.press("q");
    expect(await expectRestored(terminal)).toBe(0);
    expect((await service.batch(id)).status).toBe("queued");
  });
});
