import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import type { CommandSpec } from "../../src/cli/command.ts";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { modelOption, moneyOptions } from "../../src/cli/commands/shared-options.ts";
import { adviceFor, commandAgain, nextCommand, type Typed } from "../../src/cli/output/next-step.ts";
import { readCommandLine } from "../../src/cli/run-cli.ts";
import { ERRORS, type ErrorCode, ImgbatchError } from "../../src/contract/errors.ts";
import { retryAtOnce, runInProcess } from "../support/cli-in-process.ts";
import { FakeUpstream, troubled } from "../support/fake-provider.ts";
import { startTestService } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

const COMMANDS = await loadCommands();

const typed = (path: string, words: string[] = [], more: Partial<Typed> = {}): Typed => ({
  path,
  arguments: words,
  options: {},
  where: {},
  paysAgain: false,
  resumes: false,
  ...more,
});
const advice = (code: ErrorCode, ...about: Parameters<typeof typed>) =>
  adviceFor(new ImgbatchError(code), typed(...about));

function paths(specs: readonly CommandSpec[], above: string[] = []): string[][] {
  return specs.flatMap(({ name, commands = [] }) => [[...above, name], ...paths(commands, [...above, name])]);
}

it("[CLI-1] every error of every command has an advice, and the commands in it are ones that there are", () => {
  const codes = [...Object.keys(ERRORS), "HTTP_418", "HTTP_403", "HTTP_599"] as ErrorCode[];
  for (const path of paths(COMMANDS)) {
    for (const code of codes) {
      for (const paysAgain of [false, true]) {
        const text = advice(code, path.join(" "), ["my dir"], { paysAgain });
        expect(text.length).toBeGreaterThan(10);
        for (const [, command = ""] of text.matchAll(/\bimgbatch ([a-z -]+)/g)) {
          const words = command.trim().split(" ");
          const name = words.filter((word, i) => i === 0 || path.includes(word) || words[0] === "admin");
          const known = paths(COMMANDS).map((each) => each.join(" "));
          expect(known.some((each) => name.join(" ").startsWith(each)) || command.startsWith("--")).toBe(
            true,
          );
        }
      }
    }
  }
});

it("[CLI-1] an advice names the batch or the run that the command was about, quoted where a shell needs it", () => {
  expect(advice("TIMEOUT", "submit", ["a b.jsonl"])).toBe(
    "to give up: imgbatch cancel 'a b-images'\nimgbatch wait 'a b-images'",
  );
  expect(advice("TIMEOUT", "submit", ["x"], { options: { output: "out" } })).toMatch(/imgbatch wait out$/);
  expect(advice("TIMEOUT", "wait", ["one", "two"])).toMatch(/imgbatch wait one two$/);
  expect(advice("BATCH_IMAGE_NOT_READY", "download", ["it's"])).toBe("imgbatch wait 'it'\\''s'");
  expect(advice("BATCH_IMAGE_ITEM_NOT_FOUND", "download", ["out"])).toBe(
    "to list its items: imgbatch items out",
  );
  expect(advice("USAGE", "admin keys create")).toBe("imgbatch admin keys create --help");
  expect(advice("USAGE", "")).toBe("imgbatch --help");
});

it("[CLI-1] a command to type next goes to the same service with the same key, and shows no password", () => {
  const where = { baseUrl: "https://host/path", apiKeyFile: "my key", data: "d" };
  expect(nextCommand(where, "wait", "out")).toBe(
    "imgbatch wait out --base-url https://host/path --api-key-file 'my key' --data d",
  );
  const typed = ["generate", "--max-cost=1", "--max-cost", "2", "--", "-a fox", "--max-cost"];
  expect(commandAgain(typed, moneyOptions.maxCostMicroUsd, "3")).toBe(
    "imgbatch generate --max-cost 3 -- '-a fox' --max-cost",
  );
  for (const old of [["-m", "a"], ["-ma"], ["--model", "a"], ["--model=a"]])
    expect(commandAgain(["submit", ...old, "p.jsonl"], modelOption, "b")).toBe(
      "imgbatch submit p.jsonl --model b",
    );
  expect(nextCommand({ baseUrl: "https://me:secret@host" }, "list")).toBe("imgbatch list");
});

it("every command in an advice names the same data directory, quoted for a shell", () => {
  const codes = Object.keys(ERRORS) as ErrorCode[];
  let count = 0;
  for (const path of paths(COMMANDS))
    for (const code of codes) {
      const text = advice(code, path.join(" "), ["out"], { where: { data: "my dir" } });
      for (const [command] of text.matchAll(/\bimgbatch (?!schema)[^`;()]+/g)) {
        if (command.includes("--help")) continue;
        count++;
        expect({ code, command: command.trim() }).toMatchObject({
          command: expect.stringContaining("--data 'my dir'"),
        });
      }
    }
  expect(count).toBeGreaterThan(codes.length);
});

it("--detach without a service names the directory, the command that starts one, and one elsewhere", async () => {
  const cwd = await tempDir();
  vi.stubEnv("XDG_CONFIG_HOME", join(cwd, "home"));
  await writeFile(join(cwd, "p.txt"), "a fox\n");
  const serving = await startTestService({});
  const port = new URL(serving.url).port;
  const submit = async (config: object) => {
    await writeFile(join(cwd, "imgbatch.config.json"), JSON.stringify(config));
    await runInProcess(["doctor", "--agree", "--data", "my data"], { cwd });
    const { code, stderr } = await runInProcess(["submit", "p.txt", "-d", "--data", "my data"], { cwd });
    expect(code).toBe(2);
    expect(stderr).toContain(`none runs on ${join(cwd, "my data")}`);
    return stderr;
  };
  expect(await submit({ server: { port: Number(port) } })).toContain(
    `the service on port ${port} has another data directory: name that one with --data`,
  );
  await serving.close(0);
  expect(await submit({ server: { port: Number(port) } })).toContain("(imgbatch serve --data 'my data')");
});

it("[CLI-1] no name in a command to type next is taken for an option", () => {
  const lost = { flag: "--include-lost" } as const;
  expect(nextCommand({ data: "-d", apiKeyFile: "-" }, "retry", lost, "-o2")).toBe(
    "imgbatch retry --include-lost ./-o2 --api-key-file - --data ./-d",
  );
  expect(nextCommand({}, "retry", "--include-lost")).toBe("imgbatch retry ./--include-lost");
  expect(nextCommand({}, "wait", "-a b")).toBe("imgbatch wait './-a b'");
});

it("[CLI-1] --new is not advised beside a key of the caller's own", () => {
  const code = "BATCH_IMAGE_IDEMPOTENCY_CONFLICT";
  expect(advice(code, "submit", ["x"])).toMatch(/^add --new/);
  const own = { options: { idempotencyKey: "K" } };
  for (const each of [code, "BATCH_IMAGE_NOT_FOUND"] as const)
    expect(advice(each, "submit", ["x"], own)).toMatch(/^replace --idempotency-key with --new/);
});

it("[CLI-1] what the help gives as examples can be typed", () => {
  const specs = (all: readonly CommandSpec[]): CommandSpec[] =>
    all.flatMap((spec) => [spec, ...specs(spec.commands ?? [])]);
  const examples = specs(COMMANDS).flatMap((spec) => spec.examples ?? []);
  const calls = examples.flatMap((line) => {
    const bare = line.replace(/ {2,}#.*$/, "").replace(/"[^"]*"|'[^']*'/g, "x");
    return bare.split(/\||&&|\bsource <\(|\)| > \S+/).filter((part) => /^\s*imgbatch /.test(part));
  });
  expect(calls.length).toBeGreaterThan(COMMANDS.length);
  for (const call of calls) {
    const words = call.trim().split(/\s+/).slice(1);
    expect({ call, kind: readCommandLine(words, COMMANDS).kind }).toEqual({ call, kind: "command" });
  }
});

const nextOf = ({ stderr }: { stderr: string }) => stderr.trim().split("\n").at(-1);

it("after a refused connection the advice is about the service and its address, whatever was asked for", async () => {
  const cwd = await tempDir();
  await writeFile(join(cwd, "p.jsonl"), '{"prompt":"a cat"}\n');
  vi.stubEnv("IMGBATCH_API_KEY", "k");
  retryAtOnce();
  for (const args of [
    ["submit", "p.jsonl"],
    ["generate", "a cat"],
    ["generate", "--file", "p.jsonl"],
    ["list"],
  ]) {
    const result = await runInProcess([...args, "--base-url", "http://127.0.0.1:1"], { cwd });
    expect([args, result.code, result.stderr]).toEqual([
      args,
      7,
      expect.stringContaining("start the service"),
    ]);
    expect(result.stderr).not.toMatch(/may have been billed|--rpm/);
  }
});

it("when the service cannot reach its upstream, the advice is to check that; fewer requests help only against a limit", async () => {
  const upstream = new FakeUpstream("vendor", { isFree: true });
  const service = await startTestService({ workers: false, providers: [upstream] });
  const cwd = await tempDir();
  await writeFile(join(cwd, "p.jsonl"), '{"prompt":"a cat"}\n');
  vi.stubEnv("IMGBATCH_API_KEY", service.credentials.api_key);
  retryAtOnce();
  for (const [trouble, advised, model] of [
    ["unreachable", /^next: check the provider's `baseUrl`(?!.*(?:--rpm|billed))/, "vendorx-3.1-flash-image"],
    ["limited", /^next: wait a while.*a lower --rpm$/, "vendorx-3-pro-image"],
  ] as const) {
    upstream.answer = () => Promise.reject(troubled(trouble, { retryAfterMs: 1 }));
    const args = ["--retries", "0", "--model", model, "--base-url", service.url];
    for (const what of [["a cat"], ["--file", "p.jsonl", "-o", trouble]])
      expect(nextOf(await runInProcess(["generate", ...what, ...args], { cwd }))).toMatch(advised);
  }
});
