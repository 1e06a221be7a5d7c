import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { openService } from "../../../src/cli/connect/connect.ts";
import { createCli } from "../../support/cli.ts";
import { FAKE_KEY } from "../../support/fake-service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const NO_KEY = { env: { IMGBATCH_API_KEY: "" } };

it("a key that is piped in is used; an empty pipe or file is no key", async () => {
  const cli = await createCli();
  expect((await cli.run(["models", "--api-key-stdin"], { ...NO_KEY, stdin: `${FAKE_KEY}\n` })).code).toBe(0);
  await writeFile(join(cli.cwd, "none.key"), "\n");
  const asked = cli.fake.requests.length;
  for (const [args, source] of [
    [["models", "--api-key-stdin"], "standard input (--api-key-stdin) is empty"],
    [["models", "--api-key-file", "none.key"], "none.key (--api-key-file) is empty"],
  ] as const) {
    const { code, stderr } = await cli.here(args, NO_KEY);
    expect({ code, stderr }).toEqual({ code: 3, stderr: expect.stringContaining(source) });
  }
  expect(cli.fake.requests).toHaveLength(asked);
});

it("while the key does not come, Ctrl-C and the time limit are obeyed", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "p.jsonl"), '{"prompt":"a"}');
  const open = { ...NO_KEY, stdin: null };
  const reads = join(cli.cwd, "reads.mjs");
  await writeFile(
    reads,
    'process.stdin.on("newListener", (name) => name === "readable" && process.stderr.write("reading"));',
  );
  const env = { ...NO_KEY.env, NODE_OPTIONS: `--import=${reads}` };
  const waiting = cli.start(["models", "--api-key-stdin", "--json"], { ...open, env });
  waiting.child.stderr.once("data", () => waiting.child.kill("SIGINT"));
  const late = ["submit", "p.jsonl", "--api-key-stdin", "--timeout", "500ms"];
  const [interrupted, timedOut] = await Promise.all([waiting.ended, cli.run(late, open)]);
  expect([interrupted.code, interrupted.json().error?.code]).toEqual([130, "INTERRUPTED"]);
  expect(timedOut.code).toBe(124);
  expect(timedOut.stderr).toContain("Standard input has not ended; nothing was sent.");
  expect(cli.fake.requests).toHaveLength(0);
});

it("the time limit ends the reading of prompts too", async () => {
  const cli = await createCli();
  for (const command of ["submit", "generate"]) {
    const { code, stderr } = await cli.run([command, "-", "--timeout", "300ms"], { stdin: null });
    expect({ code, stderr }).toEqual({ code: 124, stderr: expect.stringContaining("nothing was sent.") });
  }
});

it("a key is not read from a terminal, where all could see it", async () => {
  const { signal } = new AbortController();
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const output = { warn: () => {} } as never;
  const global = {
    baseUrl: "http://127.0.0.1:1",
    apiKeyStdin: true,
    data: await tempDir(),
  } as never;
  await expect(
    openService(global, { workers: false }, { output, signal, stdin, cwd: await tempDir() }),
  ).rejects.toMatchObject({
    code: "USAGE",
    message: expect.stringContaining("standard input is a terminal"),
  });
});
