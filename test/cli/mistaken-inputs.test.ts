import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, vi } from "vitest";
import { createInProcessCli, runInProcess } from "../support/cli-in-process.ts";
import { tempDir } from "../support/temp-dir.ts";

it("what looks like an option and is a prompt is told about --", async () => {
  const cli = await createInProcessCli();
  for (const prompt of ["--ar 16:9 a fox", "-v 6 a fox"]) {
    const { code, stderr, stdout } = await cli.run(["generate", prompt]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toContain(
      `${JSON.stringify(prompt)} looks like an option; where it is a text, put -- before it: `,
    );
    expect(stderr).toContain(`generate -- '${prompt}'`);
  }
  expect(cli.fake.requests).toEqual([]);
});

it("a prompt that is the name of a file is refused with the commands for the file", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("prompts.jsonl"), '{"prompt":"a fox"}');
  writeFileSync(cli.path("fox.png"), "");
  const file = await cli.run(["generate", "prompts.jsonl"]);
  expect(file.code).toBe(2);
  expect(file.stderr).toContain("prompts.jsonl is a file, not a prompt.");
  expect(file.stderr).toMatch(/generate --file prompts\.jsonl\nnext: imgbatch submit prompts\.jsonl\n$/);
  expect((await cli.run(["generate", "fox.png"])).stderr).toContain("edit the file with --image fox.png");
  expect(cli.fake.requests).toEqual([]);
  expect((await cli.run(["generate", "a fox.png", "-o", "made.png"])).code).toBe(0);
});

it("a prompt, a directory, or a name that is nearly a file, in place of a prompt file, names the right command", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("prompts.jsonl"), '{"prompt":"a fox"}');
  mkdirSync(cli.path("album"));
  for (const [name, advice] of [
    ["a red fox", /a red fox: no such file; to make an image of these words: .*generate 'a red fox'/],
    ["promts.jsonl", /promts\.jsonl: no such file; did you mean prompts\.jsonl\?/],
    ["album", /album: is a directory; name a prompt file/],
  ] as const) {
    const { code, stderr } = await cli.run(["submit", name]);
    expect(code).toBe(2);
    expect(stderr).toMatch(advice);
  }
});

it("[CLI-1] a common slip is told the whole command line that was meant", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("prompts.jsonl"), '{"prompt":"a fox"}');
  writeFileSync(cli.path("fox.png"), "");
  for (const name of ["texts", "album", "photos"]) mkdirSync(cli.path(name));
  writeFileSync(cli.path("photos/fox.jpg"), "");
  writeFileSync(cli.path("texts/pets.jsonl"), '{"prompt":"a fox"}');
  const submit = ["submit", "prompts.jsonl"];
  for (const [typed, right] of [
    [[...submit, "--aspect", "16:9"], "submit prompts.jsonl --aspect-ratio 16:9"],
    [[...submit, "--aspect=16:9", "--dry-run"], "submit prompts.jsonl --aspect-ratio=16:9 --dry-run"],
    [["generate", "a fox", "--ar", "16:9"], "generate 'a fox' --aspect-ratio 16:9"],
    [[...submit, "--outptu", "out"], "submit prompts.jsonl --output out"],
    [[...submit, "--upstream", "gemini"], "submit prompts.jsonl --upstream google"],
    [[...submit, "--upstream=gemini"], "submit prompts.jsonl --upstream=google"],
    [[...submit, "--size", "1024"], "submit prompts.jsonl --size 1K"],
    [[...submit, "-o", "fox.png"], "submit prompts.jsonl -o fox.png-images"],
    [["submit", "texts", "--max-cost", "1"], "submit texts/pets.jsonl --max-cost 1"],
    [["submit", "promts.jsonl", "--zip"], "submit prompts.jsonl --zip"],
    [["submit", "a red fox"], "generate 'a red fox'"],
    [["submit", "album"], "init album"],
    [["submit", "photos"], "submit prompts.txt --images photos"],
  ] as const) {
    const { code, stderr } = await runInProcess(typed, { cwd: cli.cwd });
    expect([code, stderr.trim().split("\n").at(-1)]).toEqual([2, `next: imgbatch ${right}`]);
  }
});

it("[CLI-1] a command line whose own words are wrong is not the command to type next", async () => {
  const cwd = await tempDir();
  writeFileSync(join(cwd, "p.txt"), "a fox");
  vi.stubEnv("IMGBATCH_DATA", join(cwd, "data"));
  for (const words of [
    ["submit", "p.txt", "--size", "1000x999"],
    ["submit", "nothing.jsonl"],
  ]) {
    const { code, stderr } = await runInProcess(words, { cwd });
    expect([code, stderr.trim().split("\n").at(-1)]).toEqual([
      2,
      expect.stringMatching(/^next: (change|fix) /),
    ]);
  }
});

it("no command line is repeated that may have a secret, or in which the wrong word stands twice", async () => {
  const cwd = await tempDir();
  writeFileSync(join(cwd, "p.txt"), "a fox");
  for (const more of [
    ["--api-key", "abcdef"],
    ["--upstream", "gemini", "--name", "gemini"],
    ["--upstream", "gemini", "--base-url", "http://me:abcdef@host"],
  ]) {
    const { code, stderr } = await runInProcess(["submit", "p.txt", ...more], { cwd });
    expect([code, stderr.includes("abcdef"), stderr.split("\n").at(-2)]).toEqual([
      2,
      false,
      "next: imgbatch submit --help",
    ]);
  }
});

it("a file in place of the output directory is refused with one that is free, before anything is sent", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("prompts.jsonl"), '{"prompt":"a fox"}');
  writeFileSync(cli.path("out"), "notes");
  for (const command of [
    ["submit", "prompts.jsonl", "-o", "out"],
    ["generate", "--file", "prompts.jsonl", "-o", "out"],
  ]) {
    const { code, stderr } = await cli.run(command);
    expect(code).toBe(2);
    expect(stderr).toContain("--output: out is a file.");
    expect(stderr).toContain(`next: imgbatch ${command.join(" ")}-images `);
  }
  expect(cli.fake.requests).toEqual([]);
});

it("no message repeats more than 200 characters of what was typed, and no batch has so long an id", async () => {
  const cli = await createInProcessCli();
  const long = "x".repeat(3000);
  const named = await cli.run(["status", long]);
  expect(named.code).toBe(10);
  expect(named.stderr).not.toContain("x".repeat(201));
  const document = (await cli.run(["status", long, "--json"])).json();
  expect(document.error?.message).not.toContain("x".repeat(201));
  for (const args of [
    ["cancel", long],
    ["wait", `dir/${long}`],
    ["submit", `${long}.jsonl`],
    ["submit", "p.jsonl", "--size", long],
    ["submit", "p.jsonl", `--size=${long}`],
    ["generate", "x", `--${long}`],
    ["generate", "x", "-o", `${long}.png`],
    ["models", "--config", long],
    [long],
  ]) {
    const { code, stderr } = await cli.run(args);
    expect([args[0], code === 0 || code === 1]).toEqual([args[0], false]);
    expect(stderr).not.toContain("x".repeat(201));
  }
});

it("a prompt file that is called - is read by its path", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("-"), '{"prompt":"a fox"}');
  const { code, stderr } = await cli.run(["generate", "--file", "./-", "-o", "out"]);
  expect([code, stderr.includes("1 of 1 images")]).toEqual([0, true]);
});

it("a configuration, a run state and results that are nested 200,000 levels deep are told, or left out, as damaged", async () => {
  const cli = await createInProcessCli();
  const nested = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
  writeFileSync(cli.path("deep.json"), `{"server":\n${nested}}`);
  const config = await cli.run(["models", "--config", "deep.json"]);
  expect(config.code).toBe(2);
  expect(config.stderr).toContain("deep.json:2: is nested too deep: lists and objects may be 64 levels deep");
  writeFileSync(cli.path("prompts.jsonl"), '{"prompt":"a fox"}');
  mkdirSync(cli.path("out"));
  writeFileSync(cli.path("out/imgbatch.json"), `{"kind":"batch","deep":${nested}}`);
  const run = await cli.run(["submit", "prompts.jsonl", "-o", "out"]);
  expect(run.stderr).toContain("it is nested too deep");
  expect(run.stderr).not.toContain("call stack");
  expect(cli.fake.requests).toEqual([]);
});

it("a path whose name is too long for any file is wrong input, wherever it is typed or written", async () => {
  const cwd = await tempDir();
  const long = "x".repeat(300);
  const write = (name: string, line: object) => writeFileSync(join(cwd, name), JSON.stringify(line));
  write("p.jsonl", { prompt: "a fox" });
  write("list.jsonl", { prompt: "a {{b}}", vars: { b: `@${long}.txt` } });
  write("photo.jsonl", { prompt: "a fox", reference_images: [`${long}.png`] });
  const data = ["--data", await tempDir()];
  const found: Record<string, number | string> = {};
  for (const args of [
    ["submit", `${long}.jsonl`, ...data],
    ["submit", "list.jsonl", ...data],
    ["submit", "photo.jsonl", ...data],
    ["submit", "p.jsonl", "--var", `a=@${long}.txt`, ...data],
    ["submit", "p.jsonl", "--images", long, ...data],
    ["submit", "p.jsonl", "--reference", `${long}.png`, ...data],
    ["submit", "p.jsonl", "--output", long, ...data],
    ["submit", "p.jsonl", "--output", join(long, "out"), ...data],
    ["submit", "p.jsonl", "--output", long, "--dry-run", ...data],
    ["submit", "p.jsonl", "--junit", `${long}.xml`, "--dry-run", ...data],
    ["generate", "a fox", "-o", `${long}.png`, ...data],
    ["generate", "a fox", "-o", join(long, "fox.png"), ...data],
    ["generate", "a fox", "-i", `${long}.png`, ...data],
    ["generate", "--file", "p.jsonl", "-o", long, ...data],
    ["generate", "--file", `${long}.jsonl`, ...data],
    ["submit", "p.jsonl", "--data", long],
    ["generate", "a fox", "-o", "fox.png", "--data", long],
    ["models", "--data", long],
    ["models", "--config", `${long}.json`, ...data],
  ]) {
    const { code, stderr } = await runInProcess(args, { cwd });
    const [command = "", ...others] = args;
    const what = [command, ...others.filter((each) => each !== data[1])].join(" ").replaceAll(long, "LONG");
    found[what] =
      code === 2 && !/internal/i.test(stderr)
        ? 2
        : `${code}: ${stderr.replaceAll(long, "LONG").slice(0, 400)}`;
  }
  expect(found).toEqual(Object.fromEntries(Object.keys(found).map((what) => [what, 2])));
});
