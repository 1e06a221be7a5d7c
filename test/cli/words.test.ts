import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { pollInterval } from "../../src/cli/interruption.ts";
import { createCli } from "../support/cli.ts";
import { FAKE_KEY } from "../support/fake-service.ts";

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
