import { EventEmitter } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { expect, it, onTestFinished, vi } from "vitest";
import type { CommandContext } from "../../src/cli/command.ts";
import { pollInterval } from "../../src/cli/interruption.ts";
import { createOutput } from "../../src/cli/output/output.ts";
import { type Column, tableLines, widest } from "../../src/cli/output/table.ts";
import { mayShowDashboard, readAll, type Terminal, watchSignals } from "../../src/cli/terminal.ts";
import { EXIT_CODES, errorEntry, type ImgbatchError } from "../../src/contract/errors.ts";
import { createCli } from "../support/cli.ts";
import { FAKE_KEY } from "../support/fake-service.ts";
import { InstantClock } from "../support/instant-clock.ts";

it("[CLI-11] an interruption ends the reading of a stream that does not end, and lets go of it", async () => {
  const stop = new AbortController();
  const stream = new PassThrough();
  stream.write("half a line");
  const read = readAll(stream, stop.signal);
  stop.abort(new Error("interrupted"));
  await expect(read).rejects.toThrow("interrupted");
  expect(stream.destroyed).toBe(true);
  const whole = new PassThrough();
  whole.end("all of it");
  expect(Buffer.from(await readAll(whole, new AbortController().signal)).toString()).toBe("all of it");
});

it("[CLI-11] the first signal aborts and lets the work end, the second one ends the process at once", () => {
  const emitter = new EventEmitter();
  const exits: number[] = [];
  const signals = emitter as unknown as Terminal["signals"];
  const fail = (error: ImgbatchError) => EXIT_CODES[errorEntry(error.code).exit].code;
  const watch = watchSignals({ signals, exit: (code) => void exits.push(code) }, fail);
  emitter.emit("SIGINT", "SIGINT");
  expect(watch.signal.reason).toMatchObject({ code: "INTERRUPTED" });
  expect(exits).toEqual([]);
  emitter.emit("SIGINT", "SIGINT");
  emitter.emit("SIGTERM", "SIGTERM");
  expect(exits).toEqual([130, 143]);
  watch.stop();
  expect(emitter.listenerCount("SIGINT") + emitter.listenerCount("SIGTERM")).toBe(0);
});

it("[VIEW-1] the live view is for a terminal that can be redrawn, unless somebody asks for lines", () => {
  const before = [process.stdin.isTTY, process.stdout.isTTY, process.stdout.columns] as const;
  const setTerminal = ([stdin, stdout, columns]: readonly [boolean, boolean, number]) => {
    Object.assign(process.stdin, { isTTY: stdin });
    Object.assign(process.stdout, { isTTY: stdout, columns });
  };
  onTestFinished(() => setTerminal(before));
  const may = (quiet = false, progress = "auto", isForPeople = true) =>
    mayShowDashboard({ global: { quiet, progress }, results: { isForPeople } } as unknown as CommandContext);
  setTerminal([true, true, 80]);
  vi.stubEnv("CI", "");
  vi.stubEnv("TERM", "xterm-256color");
  expect(may()).toBe(true);
  expect([may(true), may(false, "plain"), may(false, "auto", false)]).toEqual([false, false, false]);
  for (const [name, value] of [
    ["TERM", "dumb"],
    ["CI", "true"],
  ] as const) {
    vi.stubEnv(name, value);
    expect(may()).toBe(false);
    vi.stubEnv(name, "");
  }
  for (const shape of [
    [false, true, 80],
    [true, false, 80],
    [true, true, 0],
  ] as const) {
    setTerminal(shape);
    expect(may()).toBe(false);
  }
});

async function plain() {
  const lines: string[] = [];
  const clock = new InstantClock();
  const stderr = { write: (text: string) => lines.push(text) } as unknown as NodeJS.WriteStream;
  const global = { quiet: false, verbose: false, progress: "plain", color: false } as const;
  return { lines, clock, output: await createOutput(global, stderr, clock) };
}

it("without a terminal a change is said at most every 10 s, and no change every 60 s", async () => {
  const { lines, clock, output } = await plain();
  const said = async (text: string, afterMs: number) => {
    await clock.sleep(afterMs);
    output.progress(text);
    return lines.length;
  };
  expect(await said("1/9", 0)).toBe(1);
  expect(await said("2/9", 9_000)).toBe(1);
  expect(await said("3/9", 1_000)).toBe(2);
  expect(await said("3/9", 59_000)).toBe(2);
  expect(await said("3/9", 1_000)).toBe(3);
  expect(lines).toEqual(["1/9\n", "3/9\n", "3/9\n"]);
});

it("a sign of life tells how long the work has taken, which is no change", async () => {
  const { lines, clock, output } = await plain();
  const startMs = clock.nowMs();
  for (const afterMs of [0, 30_000, 30_000, 120_000]) {
    await clock.sleep(afterMs);
    output.progress("1/9, running", startMs);
  }
  expect(lines).toEqual(["1/9, running\n", "1/9, running, 60 s elapsed\n", "1/9, running, 3 min elapsed\n"]);
});

it("a terminal without columns gets plain lines: a live line would redraw without end", async () => {
  const lines: string[] = [];
  const stderr = {
    isTTY: true,
    columns: 0,
    write: (text: string) => lines.push(text),
  } as unknown as NodeJS.WriteStream;
  const output = await createOutput(
    { quiet: false, verbose: false, progress: "auto", color: true },
    stderr,
    new InstantClock(),
  );
  output.progress("1/9");
  output.settle();
  expect(lines).toEqual(["1/9\n"]);
});

interface Row {
  id: string;
  count: number;
}

const columns = (maxWidth?: number): Column<Row>[] => [
  { title: "ID", ...(maxWidth === undefined ? {} : { maxWidth }), of: ({ id }) => id },
  { title: "N", align: "right", of: ({ count }) => String(count) },
];

it("columns align by terminal cells, in which wide characters take two", () => {
  const rows = [
    { id: "猫と犬", count: 1 },
    { id: "cafe\u0301", count: 20 },
    { id: "fox", count: 300 },
  ];
  expect(tableLines(columns(), rows)).toEqual([
    "ID        N",
    "猫と犬    1",
    "cafe\u0301     20",
    "fox     300",
  ]);
  expect(widest(tableLines(columns(), rows))).toBe(11);
});

it("a value that is too wide ends in an ellipsis and keeps the width, escapes included", () => {
  const rows = [
    { id: "猫と犬", count: 1 },
    { id: "a\x1b[31mb", count: 2 },
    { id: "fox", count: 3 },
  ];
  expect(tableLines(columns(5), rows)).toEqual(["ID     N", "猫と…  1", "a\\x1…  2", "fox    3"]);
});

it("an error of the service is shown with its code and request id in one line", async () => {
  const cli = await createCli();
  const answers: [object, number, string][] = [
    [{ status: 418, body: "short and stout" }, 2, "code: HTTP_418, request id: req_fake"],
    [{ status: 501, body: "" }, 7, "code: HTTP_501, request id: req_fake"],
    [
      { status: 402, body: { error: { code: "BROKE", message: "Pay first" } } },
      8,
      "code: BATCH_IMAGE_INSUFFICIENT_BALANCE, request id: req_fake",
    ],
  ];
  for (const [answer, exit, line] of answers) {
    cli.fake.fault(/models/, answer as never);
    const { code, stderr } = await cli.here(["models"]);
    expect(code).toBe(exit);
    expect(stderr.split("\n")).toContain(line);
    expect(stderr.trim().split("\n").at(-1)).toMatch(/^next: /);
  }
});

it("-v tells each request, and neither the key nor a prompt", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a secret wish"}');
  const { code, stderr } = await cli.here(["submit", "p.jsonl", "-v"]);
  expect(code).toBe(0);
  for (const path of ["GET /v1/images/batches/models", "POST /v1/images/batches", "GET .*/items.*"])
    expect(stderr).toMatch(new RegExp(`^${path}: HTTP 200, \\d+ ms, request id req_fake$`, "m"));
  expect(stderr).not.toContain("secret wish");
  expect(stderr).not.toContain(FAKE_KEY);
  expect((await cli.here(["submit", "p.jsonl"])).stderr).not.toContain("HTTP 200");
});

it("-v says what lies behind an error, without a stack", async () => {
  const cli = await createCli();
  const usage = await cli.here(["submit", "p.jsonl", "-v", "--count", "no"]);
  expect([usage.code, usage.stderr]).toEqual([2, expect.not.stringMatching(/^\s+at /m)]);
  await cli.fake.close();
  const down = await cli.here(["submit", "missing.jsonl", "-v"]);
  expect(down.stderr).not.toMatch(/^\s+at /m);
});

it("what is wrong with a configuration is said once", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "imgbatch.config.json"), '{"sever":{},"limits":{"itemsPerBatch":-1}}');
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
  for (const command of [["submit", "p.jsonl"], ["serve"], ["doctor"]]) {
    const { code, stdout, stderr } = await cli.here(command, { env: {} });
    expect(code).toBe(2);
    for (const part of ["sever", "itemsPerBatch"])
      expect([command, (stdout + stderr).split(part).length - 1]).toEqual([command, 1]);
  }
});

it("no time at all is a usage error that says what is right, and sends nothing", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
  const commands = [
    ["submit", "p.jsonl"],
    ["wait", "imgbatch_x"],
    ["watch", "imgbatch_x"],
    ["generate", "a fox"],
    ["ready", "--wait"],
  ];
  for (const command of commands) {
    for (const time of ["0", "0s", "-5s", "soon"]) {
      const { code, stderr } = await cli.here([...command, "--timeout", time]);
      expect({ command, code }).toEqual({ command, code: 2 });
      expect(stderr).toContain(`--timeout "${time}": write a time above 0 such as 30s`);
    }
  }
  for (const command of commands.slice(0, 3))
    expect((await cli.here([...command, "--interval", "0"])).code).toBe(2);
  expect(cli.fake.requests).toHaveLength(0);
});

it("a short interval is lengthened for a service elsewhere, with a warning, and free on this machine", () => {
  const said: string[] = [];
  const interval = (askedMs: number | undefined, isLocal: boolean) =>
    pollInterval(askedMs, { isLocal }, { warn: (line) => said.push(line) });
  expect([interval(undefined, false), interval(10_000, false), interval(50, true)]).toEqual([
    undefined,
    10_000,
    50,
  ]);
  expect(said).toEqual([]);
  expect(interval(2_000, false)).toBe(10_000);
  expect(said).toEqual([expect.stringContaining("--interval 2 s is too short")]);
});
