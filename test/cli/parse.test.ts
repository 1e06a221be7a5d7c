import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { CommandSpec } from "../../src/cli/command.ts";
import { loadCommands } from "../../src/cli/commands/registry.ts";
import { path, valuesOf } from "../../src/cli/options.ts";
import { readCommandLine } from "../../src/cli/run-cli.ts";
import { EXIT_CODES } from "../../src/contract/errors.ts";
import { createCli } from "../support/cli.ts";

const COMMANDS = await loadCommands();

it("--version prints the package's version, also as JSON", async () => {
  const cli = await createCli();
  const { version } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8"));
  for (const flag of ["--version", "-V"]) expect((await cli.run([flag])).stdout).toBe(`${version}\n`);
  expect((await cli.here(["--version", "--json"], { env: {} })).json()).toMatchObject({
    ok: true,
    text: `${version}\n`,
  });
});

it("without a command the help goes to stderr and the exit code is 2", async () => {
  const cli = await createCli();
  const { code, stdout, stderr } = await cli.here([], { env: {} });
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(/^Usage: imgbatch <command>/);
});

it("the help that was asked for is on stdout, and lists every command and every exit code", async () => {
  const cli = await createCli();
  const { code, stdout, stderr } = await cli.run(["--help"]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  for (const { name } of COMMANDS) expect(stdout).toMatch(new RegExp(`^ {2}${name}\\b`, "m"));
  for (const { code: exit } of Object.values(EXIT_CODES))
    expect(stdout).toMatch(new RegExp(`^ +${exit} {2}`, "m"));
  for (const { name } of COMMANDS) expect((await cli.here([name, "--help"])).code).toBe(0);
});

it("the help of each command and group has an example and its exit codes, and fits 80 columns", () => {
  const paths = (specs: readonly CommandSpec[], above: string[]): string[][] =>
    specs.flatMap(({ name, commands = [] }) => [[...above, name], ...paths(commands, [...above, name])]);
  const helpOf = (words: string[]) => {
    const help = readCommandLine(words, COMMANDS);
    return help.kind === "text" ? help.text : "";
  };
  const all = paths(COMMANDS, []);
  expect(all).toContainEqual(["admin", "keys"]);
  for (const path of [[], ...all]) {
    const text = helpOf([...path, "--help"]);
    if (path.length > 0)
      expect(text).toMatch(new RegExp(`\\nExamples:\\n {2}\\$ imgbatch ${path.join(" ")}`));
    if (path.length > 0) expect(text).toMatch(/\nGlobal options: .*\nExit codes: 0 1 2[\d ]* \(.*\)\n$/);
    expect(text.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(helpOf(["help", ...path])).toBe(text);
  }
  expect(helpOf(["admin", "help", "keys"])).toBe(helpOf(["admin", "keys", "--help"]));
  expect(() => helpOf(["help", "lst"])).toThrow("Did you mean list?");
  expect(() => helpOf(["help", "admin", "kyes"])).toThrow("Did you mean keys?");
});

it("the help has a page of every exit code, and one of the options of every command", async () => {
  const cli = await createCli();
  const codes = await cli.here(["help", "exit-codes"], { env: {} });
  for (const { code, meaning } of Object.values(EXIT_CODES))
    expect(codes.stdout).toMatch(new RegExp(`^ +${code} {2}${meaning.slice(0, 20)}`, "m"));
  const { stdout } = await cli.here(["help", "global"], { env: {} });
  for (const flag of ["--json", "--quiet", "--verbose", "--data <dir>", "--config <file>"])
    expect(stdout).toContain(flag);
  expect((await cli.here(["help", "exitcodes"])).stderr).toContain("Did you mean exit-codes?");
});

it("a long help begins with the options that most people need, and has the others below headings", () => {
  for (const [name, first] of [
    ["submit", "--upstream"],
    ["generate", "--output"],
  ]) {
    const help = readCommandLine([name ?? "", "--help"], COMMANDS);
    const text = help.kind === "text" ? help.text : "";
    const headings = [
      "Prompts",
      "The picture",
      "Money",
      "Waiting",
      "The directory",
      "Reports",
      "The service",
    ];
    expect(text.match(/^\w[\w ]*(?=:$)/gm)).toEqual(["Arguments", "Options", ...headings, "Examples"]);
    const [, most = ""] = /^Options:\n([\s\S]*?)\n\n/m.exec(text) ?? [];
    const flags = [...most.matchAll(/^ {2,6}(?:-\w, )?(--[\w-]+)/gm)].map(([, flag]) => flag);
    expect(flags).toHaveLength(11);
    expect([flags[0], flags.at(-1)]).toEqual([first, "--help"]);
  }
});

it("[CLI-30] the help is also a JSON document, of the program and of each command", async () => {
  const cli = await createCli();
  // biome-ignore lint/suspicious/noExplicitAny: a document, read as a program reads it
  const help = async (...args: string[]): Promise<any> =>
    (await cli.here([...args, "--json"], { env: {} })).json();
  const program = await help("--help");
  expect(program).toMatchObject({ ok: true, exit_code: 0, exit_codes: Object.values(EXIT_CODES) });
  expect(program.commands.map(({ name }: { name: string }) => name)).toEqual(
    COMMANDS.map(({ name }) => name),
  );
  expect(program.options).toContainEqual(expect.objectContaining({ name: "--json", type: "boolean" }));
  expect(program.examples).toContain("imgbatch submit prompts.jsonl");

  const submit = await help("submit", "--help");
  const { options, ...own } = program.commands[0];
  expect(submit).toEqual({ ok: true, exit_code: 0, ...own, options: [...options, ...program.options] });
  expect(submit.arguments).toMatchObject([{ name: "file", required: true, repeatable: true }]);
  expect(submit.options).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ name: "--max-cost", type: "number" }),
      expect.objectContaining({ name: "--max-batch", type: "integer", default: "200" }),
      expect.objectContaining({ name: "--mime-type", flags: "--mime-type <type>", default: "image/png" }),
      expect.objectContaining({ name: "--progress", choices: ["auto", "plain", "none"] }),
    ]),
  );
  const names = await help("help", "admin", "keys");
  expect(names.commands[0]).toMatchObject({ name: "admin keys create", examples: [expect.any(String)] });
  // `serve` has no --json of its own.
  const serve = await help("serve", "--help");
  expect(serve.name).toBe("serve");
  expect(serve.options).not.toContainEqual(expect.objectContaining({ name: "--json" }));
});

it("what every command takes can also stand before the name of a group's command", () => {
  const read = readCommandLine(
    ["--json", "admin", "--data", "d", "keys", "--no-color", "list", "-q"],
    COMMANDS,
  );
  expect(read).toMatchObject({
    path: "admin keys list",
    global: { json: true, data: "d", color: false, quiet: true },
  });
});

it("a misspelt command or option is exit 2 with what may be meant, and sends nothing", async () => {
  const cli = await createCli();
  const wrong: [string[], RegExp][] = [
    [["sumbit", "x"], /Did you mean submit\?/],
    [["submit", "x", "--outptu", "y"], /Did you mean --output\?/],
    [["admin", "acounts"], /Did you mean accounts\?/],
    [["submit", "x", "--mime-type", "image/jpg"], /Did you mean image\/jpeg\?/],
    [["models", "--progress", "plian"], /Did you mean plain\?/],
    [["submit"], /missing required argument/],
    [["submit", "x", "-o", "-"], /--output: name a file or a directory/],
    [["submit", "x", "--junit", "-"], /--junit: name a file/],
    [["download", "a", "-o", "-"], /--output: name a file/],
    [["status"], /missing required argument/],
    [["exec", "bash", "-c", "true"], /unknown option .-c.; put -- before the command/],
    [["models", "one", "extra"], /too many arguments/],
    [["submit", "x", "--model"], /argument missing/],
    [["download", "a", "--index", "1"], /--index works only with --item/],
    [["status", "a/b"], /neither a batch id nor the directory/],
  ];
  for (const [args, message] of wrong) {
    const { code, stdout, stderr } = await cli.here(args, { env: {} });
    expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: "" });
    expect(stderr).toMatch(message);
  }
  const without = (name: string) => `${name} has no --json: its output is not one document`;
  for (const [args, message] of [
    [["serve", "--json"], without("serve")],
    [["schema", "--json"], without("schema")],
    [["--json", "completion", "bash"], without("completion")],
    [["exec", "--json", "bash"], `${without("exec")}; put -- before the command`],
  ] as const)
    expect((await cli.here(args, { env: {} })).json()).toMatchObject({ exit_code: 2, error: { message } });
  expect(cli.fake.requests).toHaveLength(0);
});

it("[CLI-2] with --json stdout is exactly one document in every outcome, with the exit code of the process in it", async () => {
  const cli = await createCli();
  await writeFile(join(cli.cwd, "good.jsonl"), '{"prompt":"a"}');
  const outcomes: [string[], number][] = [
    [["submit", "good.jsonl"], 0],
    [["submit", "good.jsonl", "--dry-run"], 0],
    [["models"], 0],
    [["status", "good-images"], 0],
    [["wait", "good-images"], 0],
    [["download", "good-images"], 0],
    [["--help"], 0],
    [[], 2],
    [["sumbit"], 2],
    [["submit"], 2],
    [["models", "--nonsense"], 2],
    [["submit", "missing.jsonl"], 2],
    [["models", "--base-url", `${cli.fake.url}/html`], 7],
  ];
  cli.fake.always(/html/, { status: 200, body: "<html>" });
  for (const [args, expected] of outcomes) {
    const { code, json } = await cli.here([...args, "--json"], { env: {} });
    expect({ args, code }).toEqual({ args, code: expected });
    expect(json()).toMatchObject({ ok: expected === 0, exit_code: expected });
    if (expected !== 0)
      expect(json().error).toMatchObject({ code: expect.any(String), message: expect.any(String) });
  }
});

it("models lists each id with its price, one a line", async () => {
  const cli = await createCli();
  expect((await cli.here(["models"])).stdout).toBe(
    "vendorx-3.1-flash-image  $0.0335\nvendorx-3-pro-image  $0.0335\n",
  );
  const foreign = await createCli({ foreign: true });
  expect((await foreign.here(["models"])).stdout).toBe("vendorx-3.1-flash-image\nvendorx-3-pro-image\n");
});

it("a path that cannot be one is refused under the name that was typed", () => {
  const table = { file: path({ flags: "--ready-file <file>", description: "" }) };
  expect(() => valuesOf(table, { file: "-" }, 0)).toThrow("--ready-file: name a file");
});
