import { basename } from "node:path";
import { describe, expect, it } from "vitest";
import { watchKey } from "../../../src/kernel/hide-keys.ts";
import { PNG } from "../../support/upstream-adapter.ts";
import { providerError, reference } from "../upstream/scripted-server.ts";
import { inShell, programmed } from "./programs.ts";

describe("the input of a program", () => {
  it("[COMMAND-1] the program reads one JSON object, with private files that are gone afterwards", async () => {
    const { generate, told, left } = await programmed(`
      const modes = [dirname(job.output_dir), job.output_dir].map((path) => fs.statSync(path).mode & 0o777);
      const bytes = job.references.map(({ path }) => fs.readFileSync(path).equals(PNG));
      tell("seen", { job, modes, bytes, files: fs.readdirSync(job.output_dir) });
      make("a.png");`);
    const before = Date.now();
    const { images } = await generate({
      model: "m-1",
      earlier: "a forest",
      options: { ratio: "16:9", mimeType: "image/webp" },
      pixels: { widthPx: 1376, heightPx: 768 },
      seed: 77,
      references: [reference(PNG), reference(PNG, "image/jpeg")],
    });
    expect(images).toEqual([PNG]);
    const { job, modes, bytes, files } = told("seen");
    expect(job).toEqual({
      v: 1,
      id: expect.stringMatching(/\w/),
      prompt: "a forest\na red fox",
      model: "m-1",
      ratio: "16:9",
      size: "2K",
      width: 1376,
      height: 768,
      mime_type: "image/webp",
      seed: 77,
      references: [
        { path: expect.stringMatching(/\.png$/), mime_type: "image/png" },
        { path: expect.stringMatching(/\.jpg$/), mime_type: "image/jpeg" },
      ],
      output_dir: expect.any(String),
      deadline_ms: expect.any(Number),
    });
    expect(job.deadline_ms - before).toBeGreaterThanOrEqual(600_000);
    expect({ modes, bytes, files }).toEqual({ modes: [0o700, 0o700], bytes: [true, true], files: [] });
    expect(left()).toEqual([]);
  });

  it("[OPT-6] the program reads what was asked for besides", async () => {
    const { generate, told } = await programmed(`tell("seen", job); make("a.png");`);
    const options = { quality: "high", background: "transparent", seed: 3, negativePrompt: "text" } as const;
    await generate({ options, seed: 3 });
    const { quality, background, seed, negativePrompt: negative_prompt } = options;
    expect(told("seen")).toMatchObject({ quality, background, seed, negative_prompt });
  });

  it("placeholders are replaced once, and the prompt is in a file only", async () => {
    const { generate, told } = await programmed(
      `const [file, ...args] = process.argv.slice(2);
       tell("seen", { prompt: fs.readFileSync(file, "utf8"), args, inside: args[2].startsWith(job.output_dir) });
       fs.writeFileSync(args[2], PNG);`,
      {
        args: ["{prompt_file}", "--size={width}x{height}", "-s {seed}{seed}", "{output}", "{prompt}{other}"],
      },
    );
    const { images } = await generate({
      prompt: "{seed} $(id) -x",
      seed: 5,
      options: { mimeType: "image/jpeg" },
    });
    const { prompt, args, inside } = told("seen");
    expect(prompt).toBe("{seed} $(id) -x");
    expect([...args.slice(0, 2), basename(args[2]), args[3]]).toEqual([
      "--size=2528x1696",
      "-s 55",
      "image.jpg",
      "{prompt}{other}",
    ]);
    expect({ inside, images }).toEqual({ inside: true, images: [PNG] });
  });

  it("the program sees its path, home, locale and the variables that the entry names", async () => {
    const { generate, told } = await programmed(`tell("seen", process.env); make("a.png");`, {
      env: { MY_KEY: "a-secret-of-mine", LC_ALL: "C.UTF-8" },
    });
    process.env.NOT_FOR_PROGRAMS = "x";
    await generate();
    delete process.env.NOT_FOR_PROGRAMS;
    const seen = told("seen");
    expect(seen).toMatchObject({ PATH: process.env.PATH, MY_KEY: "a-secret-of-mine", LC_ALL: "C.UTF-8" });
    const known = /^(PATH|HOME|TMPDIR|LANG|LANGUAGE|LC_[A-Z]+|MY_KEY|IMGBATCH_EXEC)$/;
    expect(Object.keys(seen).filter((name) => !known.test(name) && !name.startsWith("__"))).toEqual([]);
  });
});

describe("the answer of a program", () => {
  it("the last line names the images, their cost and the model", async () => {
    const { generate } = await programmed(`
      make("b.png"); make("a.png", "first"); fs.mkdirSync(join(job.output_dir, "sub")); make("sub/c.png", "third");
      console.log("working"); 
      const paths = ["b.png", join(job.output_dir, "a.png"), "sub/../sub/c.png"];
      say({ images: paths.map((path) => ({ path })), cost_usd: 0.0334567, model: "sdxl \\u001b[1m" });
      console.log("\\n");`);
    expect(await generate({ seed: 9 })).toEqual({
      discard: expect.any(Function),
      images: [PNG, Buffer.from("first"), Buffer.from("third")],
      modelVersion: "sdxl \\x1b[1m",
      seed: 9,
      usage: { inputTokens: null, outputTokens: null, costMicroUsd: 33_457 },
      notes: [],
    });
  });

  it("a cost that is no amount costs no image, and is noted", async () => {
    const { generate } = await inShell(`make a.png; say '{"images":[{"path":"a.png"}],"cost_usd":"3"}'`);
    const { images, usage, notes } = await generate();
    expect({ images, usage }).toEqual({ images: [PNG], usage: null });
    expect(notes).toEqual([expect.stringContaining("cost_usd")]);
  });

  it("without such a line, exit code 0 takes the images in output_dir by name", async () => {
    const text = `const other = Buffer.concat([PNG, Buffer.from("2")]);
      make("b.png", other); make("a.png"); make("log.txt", "text"); fs.symlinkSync("a.png", join(job.output_dir, "c.png"));
      console.log("{done}");`;
    const { images, modelVersion, notes } = await (await programmed(text)).generate();
    expect(images).toEqual([PNG, Buffer.concat([PNG, Buffer.from("2")])]);
    expect(modelVersion).toBeNull();
    expect(notes?.join()).toMatch(/c\.png is no image.*log\.txt is no image/);
    const nothing = await inShell("printf 'garbage \\0 [ 1, 2 ]\\n[[[\\n'");
    expect((await nothing.generate()).images).toEqual([]);
    const many = await programmed(`for (let i = 10; i < 40; i++) make(i + ".png");`);
    expect((await many.generate()).images).toHaveLength(16);
  });

  it("the last of 100 MB of standard output counts", async () => {
    const { generate } = await programmed(`
      const block = Buffer.alloc(1024 * 1024, "x\\n");
      for (let i = 0; i < 100; i++) fs.writeSync(1, block);
      make("a.png"); fs.writeSync(1, JSON.stringify({ images: [{ path: "a.png" }], model: "m" }) + "\\n");`);
    expect(await generate()).toMatchObject({ images: [PNG], modelVersion: "m" });
  });

  it("the error of the last line says what is the matter", async () => {
    const { generate } = await inShell('cat "$prompt_file"');
    const said = (error: object) => JSON.stringify({ error: { ...error, message: "why\n so" } });
    for (const [error, expected] of [
      [{ code: "refused" }, { code: "SAFETY_BLOCKED", trouble: null, retryable: false }],
      [{ code: "invalid" }, { code: "INVALID_ARGUMENT", trouble: null, retryable: false }],
      [{ code: "auth" }, { code: "PROVIDER_ITEM_FAILED", trouble: "credential" }],
      [
        { code: "rate_limited", retry_after_ms: 1500 },
        { code: "PROVIDER_RATE_LIMITED", trouble: "limited", retryAfterMs: 1500 },
      ],
      [
        { code: "rate_limited", retry_after_ms: 1e300 },
        { trouble: "limited", retryAfterMs: 86_400_000 },
      ],
      [{ code: "unavailable" }, { code: "PROVIDER_ITEM_FAILED", trouble: "failing", retryable: true }],
      [{ code: "failed" }, { code: "PROVIDER_ITEM_FAILED", trouble: "failing", retryable: true }],
      [{ code: "toString" }, { code: "PROVIDER_ITEM_FAILED", trouble: "failing", retryable: true }],
    ] as const)
      expect(await providerError(generate({ prompt: said(error) })), error.code).toMatchObject({
        message: "why | so",
        ...expected,
      });
  });

  it("the exit code says what is the matter", async () => {
    const { generate, left } = await inShell(
      `make a.png; printf "no luck" >&2; exit "$(cat "$prompt_file")"`,
    );
    for (const [code, expected] of [
      [64, { code: "INVALID_ARGUMENT", trouble: null, retryable: false }],
      [65, { code: "INVALID_ARGUMENT", trouble: null, retryable: false }],
      [69, { trouble: "failing", retryable: true }],
      [75, { trouble: "failing", retryable: true }],
      [77, { trouble: "credential" }],
      [1, { code: "PROVIDER_ITEM_FAILED", trouble: "failing", retryable: true }],
      [255, { code: "PROVIDER_ITEM_FAILED", trouble: "failing", retryable: true }],
    ] as const) {
      const failure = await providerError(generate({ prompt: String(code) }));
      expect(failure, String(code)).toMatchObject(expected);
      expect(failure.message).toContain(`ended with exit code ${code}: no luck`);
      expect(left()).toEqual([]);
    }
  });

  it("a program that a signal ended may have made the image", async () => {
    const { generate } = await inShell("kill -KILL $$");
    const failure = await providerError(generate());
    expect(failure).toMatchObject({ trouble: "ambiguous" });
    expect(failure.message).toContain("was ended by SIGKILL");
  });

  it("a last line with other images than a list of paths is an error that names the field", async () => {
    const { generate } = await inShell(`say '{"images":["a.png"]}'`);
    expect(await providerError(generate())).toMatchObject({
      message: expect.stringContaining('"images" must be'),
      trouble: "ambiguous",
    });
  });

  it("the error has the last 2 KiB of the standard error, without secrets and controls", async () => {
    const key = "sk-canary-4f6d1c9b";
    watchKey(key);
    const { generate } = await programmed(
      `const key = process.env.CANARY;
       fs.writeSync(2, (key + " ").repeat(20_000));
       fs.writeSync(2, "\\x1b[31mbad\\nkey " + key + " " + Buffer.from(key).toString("base64") + " end");
       process.exit(1);`,
      { env: { CANARY: key } },
    );
    const { message } = await providerError(generate());
    expect(message).toMatch(/\\x1b\[31mbad \| key \[API key\] \[API key\] end$/);
    expect(message.replaceAll("[API key]", "")).not.toMatch(/canary|4f6d/);
    expect(message).not.toContain(Buffer.from(key).toString("base64"));
    expect(Buffer.byteLength(message)).toBeLessThan(2300);
    const said = await inShell(`say '{"error":{"code":"failed","message":"key '"$CANARY"'"}}'`, {
      env: { CANARY: key },
    });
    expect((await providerError(said.generate())).message).toBe("key [API key]");
  });

  it("what is not inside output_dir, no regular file or not there is no output", async () => {
    const { generate, left } = await inShell('. "$prompt_file"');
    const named = (path: string) => `say '{"images":[{"path":"${path}"}]}'`;
    for (const [what, prompt] of [
      ["a path outside", `say '{"images":[{"path":"'"$home/image"'"}]}'`],
      ["a path upwards", named("../prompt.txt")],
      ["the directory", named(".")],
      ["a folder inside", `mkdir "$out/d"; ${named("d")}`],
      ["a link that leads out", `ln -s "$home/image" "$out/a.png"; ${named("a.png")}`],
      ["a linked folder", `ln -s "$home" "$out/d"; ${named("d/image")}`],
      ["a file that is missing", named("none.png")],
      ["a pipe", `mkfifo "$out/a.png"; ${named("a.png")}`],
      ["a directory that it removed", `rmdir "$out"`],
    ] as const) {
      const failure = await providerError(generate({ prompt }));
      expect(failure, what).toMatchObject({ code: "PROVIDER_ITEM_FAILED", trouble: "ambiguous" });
      expect(failure.message, what).toMatch(
        /^The output \S+ (is not inside output_dir|is no regular file|cannot be read)/,
      );
      expect(left()).toEqual([]);
    }
  });

  it("an image above 64 MiB is refused; a pipe and a link in output_dir are left out", async () => {
    const large = await inShell(
      `make a.png; dd if=/dev/zero of="$out/a.png" bs=1 count=1 seek=${64 * 1024 * 1024}`,
    );
    expect(await providerError(large.generate())).toMatchObject({
      code: "INVALID_IMAGE_OUTPUT",
      retryable: false,
    });
    const odd = await inShell(`ln -s "$home/image" "$out/a.png"; mkfifo "$out/b.png"`);
    expect(await odd.generate()).toMatchObject({
      images: [],
      notes: [/a\.png/, /b\.png/].map((e) => expect.stringMatching(e)),
    });
  });
});
