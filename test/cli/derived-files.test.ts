import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import sharp from "sharp";
import { expect, it, vi } from "vitest";
import { sha256Hex } from "../../src/kernel/ids.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { listening } from "../support/listening.ts";
import { tempDir } from "../support/temp-dir.ts";

async function textOf(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString("latin1");
}

/** A picture with a bright spot at its right edge, another one for each number. */
async function picture(width: number, height: number, number: number): Promise<Buffer> {
  const spot = { create: { width: 40, height: 40, channels: 3 as const, background: "#ff3300" } };
  const ground = { r: (number * 50) % 250, g: 60, b: 90 };
  return sharp({ create: { width, height, channels: 3, background: ground } })
    .composite([{ input: await sharp(spot).png().toBuffer(), left: width - 60, top: 20 }])
    .png()
    .toBuffer();
}

/** A directory with prompts, and an upstream of type `openai` that counts what it is asked for and bills 0.10 for each image. */
async function project({ sizes }: { sizes?: unknown } = {}) {
  for (const name of ["BASE_URL", "API_KEY", "DATA"]) vi.stubEnv(`IMGBATCH_${name}`, "");
  vi.stubEnv("GITHUB_ACTIONS", "");
  vi.stubEnv("LAB_KEY", "a-key-0123456789");
  const cwd = await tempDir();
  const asked: string[] = [];
  const server = createServer(async (request, response) => {
    const body = await textOf(request);
    if (request.method === "POST") asked.push(body);
    response.setHeader("content-type", "application/json");
    const [, width = "1024", height = "1024"] = /"size":"(\d+)x(\d+)"/.exec(body) ?? [];
    const b64_json = (await picture(Number(width), Number(height), asked.length)).toString("base64");
    response.end(JSON.stringify({ data: request.method === "GET" ? [] : [{ b64_json }] }));
  });
  const baseUrl = `${await listening(server)}/v1`;
  const own = {
    name: "lab",
    type: "openai",
    baseUrl,
    apiKeyEnv: "LAB_KEY",
    concurrency: 1,
    models: ["m"],
    sizes,
  };
  const models = [{ id: "m", prices: { "1K": 0.1, "2K": 0.2 }, maxReferenceImages: 4 }];
  const groups = [{ name: "default", batchDiscount: 1, holdMultiplier: 1 }];
  writeFileSync(join(cwd, "c.json"), JSON.stringify({ providers: [own], models, groups }));
  const write = (lines: readonly object[], name = "p.jsonl") =>
    writeFileSync(join(cwd, name), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  const run = (...args: string[]) =>
    runInProcess([...args, "--config", "c.json", "--data", join(cwd, "data")], { cwd });
  const submit = (...args: string[]) => run("submit", "p.jsonl", "-o", "out", "--max-cost", "1", ...args);
  const path = (name: string) => join(cwd, name);
  const read = (name: string) => readFileSync(path(name));
  const results = () =>
    read("out/results.jsonl")
      .toString()
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  return { cwd, asked, write, run, submit, path, read, results };
}

it("[DERIVE-1] the picture of a line is a file where the line says, in its pixels and format, and the original stays", async () => {
  const { asked, write, submit, read, results } = await project();
  write([
    { custom_id: "hero", prompt: "a fox", file: "public/blog/hero.webp", pixels: "600x315" },
    { custom_id: "icon", prompt: "an owl", file: "icon.jpg", pixels: "x64", encode_quality: 60 },
    { custom_id: "plain", prompt: "a hen" },
  ]);
  const made = await submit("--json");
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("2 files made of the images")]);
  expect(asked).toHaveLength(3);
  const [hero, icon] = await Promise.all(
    [read("public/blog/hero.webp"), read("icon.jpg")].map((bytes) => sharp(bytes).metadata()),
  );
  expect(hero).toMatchObject({ format: "webp", width: 600, height: 315 });
  expect(icon).toMatchObject({ format: "jpeg", width: 64, height: 64 });
  expect((await sharp(read("out/images/hero.png")).metadata()).width).toBe(1120);
  expect(results().map((line) => line.derived)).toEqual([
    [
      expect.objectContaining({
        path: "public/blog/hero.webp",
        width: 600,
        height: 315,
        bytes: read("public/blog/hero.webp").length,
      }),
    ],
    [expect.objectContaining({ path: "icon.jpg", width: 64, height: 64 })],
    undefined,
  ]);
  expect(results()[0].file).toBe("p.jsonl");
});

it("[DERIVE-2] other pixels, formats and places are made anew from the originals, and pay nothing", async () => {
  const { asked, write, submit, read, path, results } = await project();
  const line = { custom_id: "hero", prompt: "a fox", file: "a/hero.webp", pixels: "600x315" };
  write([line]);
  expect((await submit()).code).toBe(0);
  const [before, original] = [read("a/hero.webp"), read("out/images/hero.png")];
  expect((await submit("--json")).json()).toMatchObject({ derived_count: 1, derived_written: 0 });
  expect(read("a/hero.webp").equals(before)).toBe(true);

  write([{ ...line, pixels: "300x300", position: "left" }]);
  expect((await submit("--json")).json()).toMatchObject({ paid_now: 0, derived_written: 1 });
  expect(await sharp(read("a/hero.webp")).metadata()).toMatchObject({ width: 300, height: 300 });

  write([{ ...line, file: "b/hero.avif" }]);
  const moved = await submit();
  expect([moved.code, existsSync(path("a/hero.webp"))]).toEqual([0, false]);
  expect(results()[0].derived).toMatchObject([{ path: "b/hero.avif", width: 600, height: 315 }]);
  expect(read("b/hero.avif").subarray(4, 12).toString()).toBe("ftypavif");

  write([line]);
  expect((await submit()).code).toBe(0);
  expect(read("a/hero.webp").equals(before)).toBe(true);
  expect(read("out/images/hero.png").equals(original)).toBe(true);
  expect(asked).toHaveLength(1);
});

it("[DERIVE-3] a file that the run has not made, or that was changed since, is left alone without --force", async () => {
  const { asked, write, submit, read, path } = await project();
  write([{ custom_id: "hero", prompt: "a fox", file: "hero.webp" }]);
  writeFileSync(path("hero.webp"), "mine");
  const refused = await submit("--json");
  expect(refused.code).toBe(6);
  expect(refused.json().error).toMatchObject({ code: "FILE_EXISTS" });
  expect(refused.stderr).toContain('p.jsonl:1: file: "hero.webp" exists, and this run has not made it');
  expect([asked.length, read("hero.webp").toString()]).toEqual([0, "mine"]);

  expect((await submit("--force")).code).toBe(0);
  const made = read("hero.webp");
  writeFileSync(path("hero.webp"), "touched up");
  const changed = await submit();
  expect([changed.code, changed.stderr]).toEqual([6, expect.stringContaining("was changed by hand")]);
  expect(read("hero.webp").toString()).toBe("touched up");
  expect((await submit("--force")).code).toBe(0);
  expect(read("hero.webp").equals(made)).toBe(true);
  rmSync(path("hero.webp"));
  expect((await submit()).code).toBe(0);
  expect(read("hero.webp").equals(made)).toBe(true);
  expect(asked).toHaveLength(1);
});

it("[DERIVE-4] files lie below the directory of the prompt file, by their real paths, or below --root", async () => {
  const { asked, cwd, write, run, submit, path } = await project();
  const elsewhere = await tempDir();
  symlinkSync(elsewhere, path("linked"));
  write([
    { custom_id: "a", prompt: "a fox", file: "../out-of-here.webp" },
    { custom_id: "b", prompt: "a fox", file: "linked/b.webp" },
    { custom_id: "c", prompt: "a fox", file: "c.webp" },
    { custom_id: "d", prompt: "a fox", file: "sub/../C.webp" },
  ]);
  const refused = await submit("--json");
  expect(refused.code).toBe(2);
  expect(refused.json().error?.details).toEqual([
    expect.stringContaining('p.jsonl:1: file: "../out-of-here.webp" does not lie below'),
    expect.stringContaining('p.jsonl:2: file: "linked/b.webp" does not lie below'),
    expect.stringContaining('p.jsonl:4: file: "sub/../C.webp" is the file of p.jsonl:3 already'),
  ]);
  expect(readdirSync(elsewhere)).toEqual([]);
  mkdirSync(path("pages"));
  write([{ custom_id: "a", prompt: "a fox", file: "../public/a.webp" }], "pages/p.jsonl");
  const inPages = ["submit", "pages/p.jsonl", "-o", "out", "--max-cost", "1"];
  expect((await run(...inPages)).code).toBe(2);
  expect((await run(...inPages, "--root", cwd)).code).toBe(0);
  expect([existsSync(path("public/a.webp")), asked.length]).toEqual([true, 1]);
});

it("[DERIVE-5] fields about files that no file can have are told with their line, and what is right", async () => {
  const { asked, write, submit } = await project();
  const line = (fields: object) => ({ prompt: "a fox", ...fields });
  write([
    line({ file: "/etc/a.png" }),
    line({ file: "a\\b.png" }),
    line({ file: "con.png" }),
    line({ file: "a./b.png" }),
    line({ file: "a.gif" }),
    line({ file: "a.png", format: "webp" }),
    line({ file: "a" }),
    line({ pixels: "100x100" }),
    line({ file: "b.png", pixels: "huge" }),
    line({ file: "c.png", encode_quality: 80 }),
    line({ file: "d.webp", fit: "stretch" }),
    line({ file: "e.webp", pixels: "9x9", position: "middle" }),
    line({ file: "{{slug}}.webp" }),
    line({ file: "f.webp", also: ["f.webp"] }),
  ]);
  const refused = await submit("--json");
  expect([refused.code, asked.length]).toEqual([2, 0]);
  expect(refused.json().error?.details).toEqual(
    [
      '1: file: "/etc/a.png" is not relative to the prompt file',
      '2: file: "a\\\\b.png" has a \\; write /',
      '3: file: "con.png" has the name of a device of Windows',
      '4: file: "a./b.png" has a name that ends with a dot',
      '5: file: "a.gif": .gif is no format of a picture here; use .png, .jpg, .webp or .avif',
      '6: format: webp: the file "a.png" ends as png',
      '7: file: "a" has no ending',
      "8: pixels: says how the file of the picture is made",
      '9: pixels: "huge": write width x height such as 1200x630',
      "10: encode_quality: a PNG has none",
      '11: fit: "stretch": use cover, contain, fill, inside',
      '12: position: "middle": use attention',
      '13: file: "{{slug}}.webp": nothing stands for {{slug}}',
      '14: also: "f.webp" is the file of p.jsonl:14 already',
    ].map((text) => expect.stringContaining(`p.jsonl:${text}`)),
  );
});

it("[DERIVE-1] --file names the files of a table by its columns, and each image of a line by its number", async () => {
  const { asked, run, path, read } = await project();
  writeFileSync(path("t.csv"), "prompt,slug,output_count\na fox,fox,1\nan owl,birds/owl,2\n");
  const args = ["submit", "t.csv", "-o", "out", "--max-cost", "1", "--file", "img/{{slug}}-{{n}}.webp"];
  const made = await run(...args);
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("3 files made")]);
  expect(readdirSync(path("img"), { recursive: true }).sort()).toEqual([
    "birds",
    "birds/owl-1.webp",
    "birds/owl-2.webp",
    "fox-1.webp",
  ]);
  expect(read("img/birds/owl-1.webp").equals(read("img/birds/owl-2.webp"))).toBe(false);
  expect(asked).toHaveLength(3);
});

it("[DERIVE-1] also names more files of the same picture, in a cell between semicolons", async () => {
  const { asked, run, path, read } = await project();
  const cell = "hero@2x.webp 1000x500; hero.jpg;x/small.png 50x";
  writeFileSync(path("t.csv"), `prompt,file,pixels,also\na fox,public/hero.webp,500x250,${cell}\n`);
  expect((await run("submit", "t.csv", "-o", "out", "--max-cost", "1")).code).toBe(0);
  const sizes = await Promise.all(
    ["hero.webp", "hero@2x.webp", "hero.jpg", "x/small.png"].map(async (name) => {
      const { width, height, format } = await sharp(read(`public/${name}`)).metadata();
      return [format, width, height];
    }),
  );
  expect(sizes).toEqual([
    ["webp", 500, 250],
    ["webp", 1000, 500],
    ["jpeg", 500, 250],
    ["png", 50, 25],
  ]);
  expect(asked).toHaveLength(1);
});

it("[DERIVE-7] a file says that it is made by AI, of a person's own picture where one went in, and drawings say so, too", async () => {
  const { cwd, write, submit, read, path } = await project();
  writeFileSync(path("cat.png"), await picture(64, 64, 1));
  write([
    { custom_id: "a", prompt: "a fox", file: "a.png" },
    { custom_id: "b", prompt: "a fox", file: "b.webp", reference_images: ["cat.png"] },
  ]);
  expect((await submit()).code).toBe(0);
  const kind = (name: string) =>
    /digitalsourcetype\/(\w+)/.exec(read(name).toString("latin1"))?.[1] ?? "nothing";
  expect([kind("a.png"), kind("b.webp"), kind("out/images/a.png")]).toEqual([
    "trainedAlgorithmicMedia",
    "compositeWithTrainedAlgorithmicMedia",
    "nothing",
  ]);
  expect((await submit("--no-mark")).code).toBe(0);
  expect([kind("a.png"), kind("b.webp")]).toEqual(["nothing", "nothing"]);
  expect(read("a.png").equals(read("out/images/a.png"))).toBe(true);
  write([{ prompt: "a fox", file: "drawn.png" }], "drawn.jsonl");
  const drawn = ["submit", "drawn.jsonl", "--config", "none", "--data", join(cwd, "other")];
  expect((await runInProcess(drawn, { cwd })).code).toBe(0);
  expect(kind("drawn.png")).toBe("algorithmicMedia");
});

it("[DERIVE-6] a file with more pixels than its picture is said, and not made with --strict", async () => {
  const { asked, write, submit, read, path, results } = await project();
  write([{ custom_id: "hero", prompt: "a fox", aspect_ratio: "1:1", file: "hero.png", pixels: "1500x1500" }]);
  const strict = await submit("--strict");
  expect([strict.code, existsSync(path("hero.png")), asked.length]).toEqual([2, false, 0]);
  expect(strict.stderr).toContain(
    "p.jsonl:1: pixels: the file needs 1500x1500, and the picture has 1024x1024",
  );
  const made = await submit();
  expect([made.code, made.stderr]).toEqual([0, expect.stringContaining("hero.png: larger than the image")]);
  expect((await sharp(read("hero.png")).metadata()).width).toBe(1500);
  expect(results()[0].derived[0]).toMatchObject({ enlarged: true });
  expect(asked).toHaveLength(1);
});

it("[DERIVE-2] a disk that is full between original and file leaves nothing half-written, and the next run goes on", async () => {
  const { asked, cwd, write, submit, read, path } = await project();
  write([
    { custom_id: "a", prompt: "a fox", file: "locked/a.webp" },
    { custom_id: "b", prompt: "an owl", file: "b.webp" },
  ]);
  // A file where the directory is to be made stands for a disk that refuses.
  writeFileSync(path("locked"), "");
  const failed = await submit();
  expect([failed.code, failed.stderr]).toEqual([9, expect.stringContaining("pays nothing")]);
  expect(readdirSync(cwd).filter((name) => name.endsWith(".part"))).toEqual([]);
  expect(existsSync(path("out/images/a.png"))).toBe(true);
  rmSync(path("locked"));
  expect((await submit()).code).toBe(0);
  expect([read("locked/a.webp").length > 0, read("b.webp").length > 0, asked.length]).toEqual([
    true,
    true,
    2,
  ]);
});

it("[DERIVE-1] of several images the first becomes the file, which is said, and then the chosen one", async () => {
  const { asked, write, submit, run, read } = await project();
  write([{ custom_id: "owl", prompt: "an owl", output_count: 2, file: "owl.png" }]);
  const made = await submit("--no-mark");
  expect(made.stderr).toContain("owl: the first image became the file");
  expect(read("owl.png").equals(read("out/images/owl_01.png"))).toBe(true);
  const chosen = await run("review", "out", "--choose", "owl=2");
  expect([chosen.code, chosen.stderr]).toEqual([
    0,
    expect.stringContaining("1 file made of the images, 1 of them"),
  ]);
  expect(read("owl.png").equals(read("out/images/owl_02.png"))).toBe(true);
  expect((await submit("--no-mark")).stderr).not.toContain("the first image became the file");
  expect(read("owl.png").equals(read("out/images/owl_02.png"))).toBe(true);
  expect(asked).toHaveLength(2);
});

/** What the model makes: a list, or all sizes by a rule. */
const LISTED = ["1024x1024", "1536x1024", "1024x1536"];
const BY_RULE = {
  multipleOf: 16,
  longestPx: 3840,
  leastPixels: 655_360,
  mostPixels: 8_294_400,
  mostRatio: 3,
};

it("[DERIVE-8] a model is asked for the cheapest picture of which the file can be cut, then for the one that loses least", async () => {
  const lines = [
    { custom_id: "card", prompt: "a fox", file: "card.webp", pixels: "1200x630" },
    { custom_id: "icon", prompt: "a fox", file: "icon.png", pixels: "64x64", also: ["icon@2x.png 128x128"] },
    { custom_id: "tall", prompt: "a fox", file: "tall.jpg", pixels: "900x2000" },
    { custom_id: "own", prompt: "a fox", file: "own.jpg", pixels: "600x300", aspect_ratio: "1:1" },
  ];
  for (const [sizes, wanted] of [
    [LISTED, ["1536x1024", "1024x1024", "1024x1536", "1024x1024"]],
    [BY_RULE, ["1200x640", "816x816", "912x2000", "1024x1024"]],
  ] as const) {
    const { asked, write, submit, read } = await project({ sizes });
    write(lines);
    const made = await submit();
    expect([made.code, asked.map((body) => /"size":"(\w+)"/.exec(body)?.[1] ?? "1024x1024")]).toEqual([
      0,
      wanted,
    ]);
    expect(made.stderr.includes("p.jsonl:3: pixels: the file needs 900x2000, and m makes")).toBe(
      sizes === LISTED,
    );
    expect(await sharp(read("tall.jpg")).metadata()).toMatchObject({ width: 900, height: 2000 });
  }
});

it("[DERIVE-8] a picture that still covers other pixels stays, and one that does not is made again with consent alone", async () => {
  const { asked, write, submit, read, path } = await project({ sizes: LISTED });
  const line = { custom_id: "card", prompt: "a fox", file: "card.webp", pixels: "1200x630" };
  const other = { custom_id: "other", prompt: "a hen" };
  write([line, other]);
  expect((await submit()).code).toBe(0);
  write([{ ...line, pixels: "100x100" }, other]);
  expect((await submit("--json")).json()).toMatchObject({ paid_now: 0, derived_written: 1 });
  expect(asked).toHaveLength(2);

  write([{ ...line, pixels: "800x1500" }, other]);
  const stale = await submit();
  expect([stale.code, stale.stderr]).toEqual([6, expect.stringContaining("p.jsonl:1: card: changed")]);
  expect(stale.stderr).toContain("to make only 1 image (about $0.10) and keep the others");
  expect((await sharp(read("card.webp")).metadata()).width).toBe(100);
  expect((await submit("--update")).code).toBe(0);
  expect(asked).toHaveLength(3);
  expect(await sharp(read("card.webp")).metadata()).toMatchObject({ width: 800, height: 1500 });
  expect(existsSync(path("out/versions/card.png"))).toBe(true);
  expect((await submit("--json")).json()).toMatchObject({ paid_now: 0, derived_written: 0 });
  expect(asked).toHaveLength(3);
});

it("[DERIVE-2] a picture that is made again because a person wants another one becomes the file, and so does an earlier one", async () => {
  const { asked, write, submit, run, read } = await project();
  write([{ custom_id: "fox", prompt: "a fox", file: "fox.png" }]);
  expect((await submit("--no-mark")).code).toBe(0);
  const first = read("fox.png");
  expect((await run("retry", "out", "--only", "fox", "--max-cost", "1")).code).toBe(0);
  expect(asked).toHaveLength(2);
  expect(read("fox.png").equals(first)).toBe(false);
  expect(read("fox.png").equals(read("out/images/fox.png"))).toBe(true);
  const sha = sha256Hex(read("out/versions/fox.png"));
  expect((await run("review", "out", "--choose", `fox=${sha}`)).code).toBe(0);
  expect(read("fox.png").equals(first)).toBe(true);
  expect((await submit("--no-mark")).code).toBe(0);
  expect(read("fox.png").equals(first)).toBe(true);
  expect(asked).toHaveLength(2);
});
