import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { Option } from "commander";
import { describe, expect, it } from "vitest";
import { loadNamedCommands } from "../../src/cli/commands/registry.ts";
import { ImgbatchError, startService, submit } from "../../src/library/imgbatch.ts";
import { installPacked } from "../support/packed.ts";
import { cleanEnvironment } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const run = promisify(execFile);

/** The error that a call rejects with. */
async function errorOf(call: Promise<unknown>): Promise<ImgbatchError> {
  const error = await call.then(
    () => null,
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(ImgbatchError);
  return error;
}

describe("the package as a library", () => {
  it("[LIBRARY-1] packed and installed, does what its recipe says, has types, and loads by require", {
    timeout: 240_000,
  }, async () => {
    const directory = await tempDir();
    await installPacked(directory, ["node_modules/vitest"]);
    const env = cleanEnvironment({
      HOME: directory,
      TMPDIR: directory,
      IMGBATCH_DATA: join(directory, "data"),
    });
    const node = (...args: string[]) => run(process.execPath, args, { cwd: directory, env });

    const recipes = await readFile(join(ROOT, "templates/README.md"), "utf8");
    const section = recipes.slice(recipes.indexOf("## From a program"), recipes.indexOf("## Tests of your"));
    const [, recipe = ""] = /^```js\n(.*?)^```/ms.exec(section) ?? [];
    await writeFile(join(directory, "recipe.mjs"), recipe);
    const { stdout } = await node("recipe.mjs");
    expect(stdout.split("\n")).toEqual([
      expect.stringMatching(/^item_000001 images\/\S+\.png$/),
      expect.stringMatching(/^owl images\/\S+\.png$/),
      expect.stringMatching(/^USAGE .*--size/),
      "",
    ]);
    expect(existsSync(join(directory, "animals/results.jsonl"))).toBe(true);

    const names = await node("-p", 'Object.keys(require("imgbatch")).join()');
    expect(names.stdout.trim()).toBe("generate,ImgbatchError,startService,submit");

    const typed = `
      import { generate, ImgbatchError, startService, submit } from "imgbatch";
      import { startImgbatch, useImgbatch } from "imgbatch/test";
      export async function check(): Promise<string | undefined> {
        const { items, ok } = await submit(["a", { prompt: "b", size: "2K" }], { maxCost: 3, aspectRatio: "16:9", gallery: false });
        const { path, cost } = await generate("a", { image: ["a.png"], signal: AbortSignal.timeout(5) });
        const service = await startService({ port: 0 });
        await service.close();
        const { fail, requests } = useImgbatch({ vendor: "google", replay: "pictures" });
        await fail({ times: 2, status: 429, retry_after: 1 });
        const statuses: (number | null)[] = (await requests()).map(({ answer }) => answer.status);
        await (await startImgbatch()).stop();
        // @ts-expect-error: no such option
        await submit("prompts.jsonl", { maxCots: 3 });
        // @ts-expect-error: no such field
        await fail({ stats: 429 });
        // @ts-expect-error: neither text nor prompt
        await submit([{ text: "a" }]);
        const error: unknown = new Error();
        return error instanceof ImgbatchError ? error.code : \`\${ok} \${path} \${cost} \${statuses} \${items[0]?.files?.[0]?.sha256}\`;
      }`;
    for (const name of ["typed.mts", "typed.cts"]) await writeFile(join(directory, name), typed);
    const flags = ["--noEmit", "--strict", "--module", "nodenext", "--types", "", "typed.mts", "typed.cts"];
    const tsc = run(join(ROOT, "node_modules/.bin/tsc"), flags, { cwd: directory });
    expect(
      await tsc.then(
        () => "",
        ({ stdout }) => stdout,
      ),
    ).toBe("");
  });

  it.each([
    ["submit", "SubmitOptions"],
    ["generate", "GenerateOptions"],
  ])("[LIBRARY-1] the types of %s name the options of the command", async (name, type) => {
    const text = await readFile(join(ROOT, "src/library/imgbatch.d.cts"), "utf8");
    const named = ["ImageOptions", type].flatMap((each) => {
      const form = new RegExp(`^export interface ${each} extends .*?\\{\n(.*?)^\\}`, "ms");
      const [, body = ""] = form.exec(text) ?? [];
      return [...body.matchAll(/^ {2}(\w+)\?: /gm)].map(([, option]) => option);
    });
    const [spec] = (await loadNamedCommands([name])).filter((each) => each.name === name);
    // A call of `generate` makes one image.
    const isForOne = (description: string) =>
      !/^(with --file: |make all images of a prompt file)/.test(description);
    const options = Object.values(spec?.options ?? {}).filter(({ description }) => isForOne(description));
    expect(named.sort()).toEqual(
      [...new Set(options.map(({ flags }) => new Option(flags).attributeName()))].sort(),
    );
  });

  it("[LIBRARY-2] refuses a wrong option by its name, and sends nothing", async () => {
    const cwd = await tempDir();
    const call = (options: object) =>
      errorOf(submit(["a fox"], { cwd, data: join(cwd, "data"), ...options }));
    expect(await call({ maxCots: 3 })).toMatchObject({
      code: "USAGE",
      param: "maxCots",
      message: "maxCots: submit has no such option. Did you mean maxCost?",
    });
    expect((await call({ gallery: "no" })).message).toBe("gallery: must be true or false");
    expect((await call({ reference: "a.png" })).message).toBe("reference: must be a list of texts");
    expect((await call({ output: true })).message).toBe("output: must be a text or a number");
    expect(await call({ aspectRatio: "wide" })).toMatchObject({ code: "USAGE" });
    expect(existsSync(join(cwd, "data"))).toBe(false);
    const problems = await errorOf(submit([{ prompt: "" }, "a fox"], { cwd, data: join(cwd, "data") }));
    expect([problems.code, problems.details?.length]).toEqual(["INVALID_INPUT", 1]);
  });

  it("[LIBRARY-1] runs on a service, tells its notes and events, stops by a signal, and goes on by the same call", async () => {
    const cwd = await tempDir();
    const service = await startService({ data: join(cwd, "data"), cwd });
    const where = { cwd, data: service.data, output: "out" };
    const prompts = ["a fox", "an owl [[delay:2s]]"];
    const stopped = new AbortController();
    const events: string[] = [];
    const onEvent = ({ event }: { event: string }) => {
      events.push(event);
      if (event === "batch_created") stopped.abort();
    };
    const first = await errorOf(submit(prompts, { ...where, signal: stopped.signal, onEvent }));
    expect(first.code).toBe("INTERRUPTED");
    expect(events.length).toBeGreaterThan(0);
    const notes: string[] = [];
    const done = await submit(prompts, { ...where, onNote: (line) => void notes.push(line) });
    expect([done.ok, done.items.map(({ status }) => status)]).toEqual([true, ["success", "success"]]);
    expect(notes.join("\n")).toContain("2 of 2 images on disk and verified");
    expect((await submit(prompts, where)).replayed).toBe(true);
    await service.close();
  });
});
