import { copyFile, mkdir, readdir, readFile, rename, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ImgbatchError } from "../../../src/contract/errors.ts";
import { StorageUnavailable } from "../../../src/domain/ports/blob-store.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { watchKey } from "../../../src/kernel/hide-keys.ts";
import { silentLog } from "../../../src/kernel/log.ts";
import { createReplayProvider, Recordings, recordable } from "../../../src/providers/replay/provider.ts";
import { FakeUpstream, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { entryOf } from "../../support/upstream-adapter.ts";
import type { RequestChanges } from "../upstream/scripted-server.ts";
import { imageRequest, reference } from "../upstream/scripted-server.ts";

const NEVER = new AbortController().signal;
const inspector = sharpInspector(new Decoding());
const square = { options: { size: "1K", ratio: "1:1" }, pixels: { widthPx: 1024, heightPx: 1024 } } as const;
const FOX = imageRequest({ model: "a-model", prompt: "a red fox, “in the snow”", ...square });
const pictured = (text: string) => reference(Buffer.from(text));

interface Recorded {
  request: object;
  images: object[];
}

/** A directory with a recording of the fox, and the names of its files. */
async function recorded() {
  const directory = await tempDir();
  const recordings = await Recordings.open(directory, inspector, true);
  const fox = await recordable(FOX);
  const image = await tinyPng();
  expect(await recordings.find(fox, NEVER)).toBeNull();
  await recordings.keep(fox, { images: [image], modelVersion: "a-model-2", seed: 9, notes: ["a note"] });
  const [picture = "", json = ""] = (await readdir(directory)).sort();
  return {
    directory,
    recordings,
    fox,
    image,
    picture: join(directory, picture),
    json: join(directory, json),
  };
}

describe("the recordings of a directory", () => {
  it("[REPLAY-3] are a picture and a JSON text that says in words what was asked for, in lines that can be compared", async () => {
    const { recordings, fox, image, picture, json } = await recorded();
    expect(await recordings.find(fox, NEVER)).toEqual({
      ...{ images: [image], modelVersion: "a-model-2", seed: 9, notes: ["a note"] },
      discard: expect.any(Function),
    });
    expect(await readFile(picture)).toEqual(image);
    const text = await readFile(json, "utf8");
    expect(text.split("\n").slice(0, 11)).toEqual([
      "{",
      '  "imgbatch_recording": 1,',
      `  "key": "${fox.key}",`,
      '  "request": {',
      '    "model": "a-model",',
      '    "prompt": "a red fox, “in the snow”",',
      '    "aspect_ratio": "1:1",',
      '    "image_size": "1K",',
      '    "mime_type": "image/png",',
      '    "ordinal": 0',
      "  },",
    ]);
    expect(json).toMatch(/\/a-red-fox-in-the-snow-[0-9a-f]{16}\.json$/);
  });

  it("[REPLAY-3] keep a refusal in the words of the upstream, without a key that it repeats", async () => {
    const { recordings, directory } = await recorded();
    const owl = await recordable({ ...FOX, prompt: "an owl" });
    const key = "sk-a-key-that-is-repeated";
    watchKey(key);
    const refusal = `Not for ${key}: an owl.`;
    await recordings.keep(owl, { refusal, modelVersion: `m ${key}`, notes: [key] });
    expect(await readFile(join(directory, `${owl.stem}.json`), "utf8")).not.toContain(key);
    const error = { code: "SAFETY_BLOCKED", message: "Not for [API key]: an owl.", retryable: false };
    await expect(recordings.find(owl, NEVER)).rejects.toMatchObject(error);
  });

  it("[REPLAY-2] know a request by what decides its picture, and by nothing else", async () => {
    const keyOf = async (change: RequestChanges) =>
      (await recordable({ ...FOX, ...change, options: { ...FOX.options, ...change.options } })).key;
    const own = await keyOf({});
    const same: RequestChanges[] = [
      { attempt: 2, seed: 6, origin: "batch", earlier: "", defaultQuality: undefined },
      { options: {} },
      { pixels: { widthPx: 1, heightPx: 1 } },
    ];
    for (const change of same) expect(await keyOf(change)).toBe(own);
    const others: RequestChanges[] = [
      { model: "b" },
      { prompt: "b" },
      { earlier: "b" },
      { outputIndex: 1 },
      { options: { size: "2K" } },
      { options: { ratio: "16:9" } },
      { options: { keepsRatio: true }, references: [pictured("a")] },
      { options: { mimeType: "image/webp" } },
      { references: [pictured("a")] },
      { references: [pictured("b")] },
      { references: [pictured("a"), pictured("b")] },
      { references: [pictured("b"), pictured("a")] },
      { references: [pictured("a")], mask: pictured("m") },
      { options: { quality: "high" } },
      { options: { background: "opaque" } },
      { options: { seed: 5 } },
      { options: { negativePrompt: "b" } },
    ];
    const keys = await Promise.all(others.map(keyOf));
    expect(new Set([own, ...keys]).size).toBe(others.length + 1);
    expect(await keyOf({ defaultQuality: "high" })).toBe(await keyOf({ options: { quality: "high" } }));
  });

  type Files = Awaited<ReturnType<typeof recorded>>;
  const change = async ({ json }: Files, edit: (record: Recorded) => object) =>
    writeFile(json, JSON.stringify(edit(JSON.parse(await readFile(json, "utf8")))));
  const replaceByLink = async (path: string) => {
    await rename(path, `${path}.real`);
    await symlink(`${path}.real`, path);
  };
  const damages: [
    what: string,
    damage: (files: Files) => Promise<unknown>,
    named: "json" | "picture",
    words: RegExp,
  ][] = [
    [
      "JSON that is cut off",
      async ({ json }) => writeFile(json, (await readFile(json)).subarray(0, 90)),
      "json",
      /is no recording, or damaged/,
    ],
    [
      "a JSON file of another program",
      ({ json }) => writeFile(json, '{"imgbatch": 1}'),
      "json",
      /is no recording/,
    ],
    [
      "JSON of another version",
      (files) => change(files, (r) => ({ ...r, imgbatch_recording: 2 })),
      "json",
      /version 2.*reads version 1/,
    ],
    [
      "another prompt in the JSON",
      (files) => change(files, (r) => ({ ...r, request: { ...r.request, prompt: "an owl" } })),
      "json",
      /its hash differs/,
    ],
    [
      "the key of another request",
      (files) => change(files, (r) => ({ ...r, key: "0".repeat(64) })),
      "json",
      /its hash differs/,
    ],
    [
      "neither images nor a refusal",
      (files) => change(files, ({ images: _, ...r }) => r),
      "json",
      /neither images nor a refusal/,
    ],
    [
      "a picture elsewhere",
      (files) => change(files, (r) => ({ ...r, images: [{ ...r.images[0], file: "../fox.png" }] })),
      "json",
      /names "\.\.\/fox\.png", which is not its own/,
    ],
    ["no picture", ({ picture }) => rm(picture), "picture", /is missing/],
    [
      "a picture that is cut off",
      async ({ picture }) => writeFile(picture, (await readFile(picture)).subarray(0, 50)),
      "picture",
      /its hash differs/,
    ],
    [
      "a picture of another type",
      async ({ picture }) => writeFile(picture, await tinyJpeg()),
      "picture",
      /its hash differs/,
    ],
    ["a link as JSON file", ({ json }) => replaceByLink(json), "json", /is a link/],
    ["a link as picture", ({ picture }) => replaceByLink(picture), "picture", /is a link/],
    [
      "a link that leads nowhere",
      ({ json }) => rm(json).then(() => symlink("/nowhere", json)),
      "json",
      /is a link/,
    ],
    ["a directory in place of a file", ({ json }) => rm(json).then(() => mkdir(json)), "json", /is no file/],
  ];
  it.each(damages)("[REPLAY-4] are refused by name: %s", async (_, damage, named, words) => {
    const files = await recorded();
    // Also one that is in memory by now.
    await files.recordings.find(files.fox, NEVER);
    await damage(files);
    const failure = await files.recordings.find(files.fox, NEVER).catch((error) => error);
    expect(failure).toBeInstanceOf(ProviderError);
    expect(failure).toMatchObject({ code: "INVALID_ARGUMENT", retryable: false, trouble: null });
    expect(failure.message).toMatch(words);
    expect(failure.message).toContain(files[named].split("/").at(-1));
    // The directory may be a path of the operator's machine.
    expect(failure.message).not.toContain(files.directory);
  });

  it("[REPLAY-1] are read and decoded once, until the file changes", async () => {
    const { directory, fox, picture, image } = await recorded();
    let decoded = 0;
    const counting: typeof inspector = {
      inspect: (...of) => {
        decoded++;
        return inspector.inspect(...of);
      },
    };
    const recordings = await Recordings.open(directory, counting, false);
    const find = async () => (await recordings.find(fox, NEVER))?.images;
    const [first, second] = [await find(), await find()];
    expect([first, second?.[0] === first?.[0], decoded]).toEqual([[image], true, 1]);
    await utimes(picture, 1, 1);
    expect([await find(), decoded]).toEqual([[image], 2]);
  });

  it("[REPLAY-4] are refused by name when a picture and its hash were changed together", async () => {
    const files = await recorded();
    await rm(files.json);
    await files.recordings.keep(files.fox, { images: [await tinyJpeg()], modelVersion: null });
    const names = await readdir(files.directory);
    const name = names.find((each) => each.endsWith(".jpg")) ?? "";
    await copyFile(join(files.directory, name), join(files.directory, name.replace(".jpg", ".png")));
    const text = await readFile(files.json, "utf8");
    await writeFile(files.json, text.replaceAll(".jpg", ".png").replaceAll("image/jpeg", "image/png"));
    await expect(files.recordings.find(files.fox, NEVER)).rejects.toThrow(
      /\.png in the replay directory is image\/jpeg, not image\/png/,
    );
  });

  it("[REPLAY-4] with a picture named thousands of times, or nested thousands of lists deep, are refused unread", async () => {
    const { recordings, fox, json } = await recorded();
    const {
      images: [named],
      ...record
    } = JSON.parse(await readFile(json, "utf8"));
    const deep = (levels: number) => JSON.parse(`${"[".repeat(levels)}${"]".repeat(levels)}`);
    for (const wrong of [
      { ...record, images: Array(17).fill(named) },
      { ...record, request: { ...record.request, references: deep(3000) } },
    ]) {
      await writeFile(json, JSON.stringify(wrong));
      await expect(recordings.find(fox, NEVER)).rejects.toThrow(/is no recording, or damaged/);
    }
    await writeFile(json, JSON.stringify({ ...record, images: Array(16).fill(named) }));
    expect((await recordings.find(fox, NEVER))?.images).toHaveLength(16);
  });

  it("[REPLAY-2] pass on the words of a refusal without control characters and without end", async () => {
    const { recordings, fox, json } = await recorded();
    const { images: _, ...record } = JSON.parse(await readFile(json, "utf8"));
    const refusal = `no \u001b]0;title\u0007 foxes ${"x".repeat(9000)}`;
    await writeFile(json, JSON.stringify({ ...record, refusal, model_version: "a\u001bb" }));
    const failure = await recordings.find(fox, NEVER).catch((error) => error);
    expect(failure).toMatchObject({ code: "SAFETY_BLOCKED", modelVersion: "a\\x1bb" });
    expect(failure.message).toMatch(/^no \\x1b\]0;title\\x07 foxes x{400,480}…$/);
  });

  it("[REPLAY-4] keep no bytes that are no picture", async () => {
    const { recordings, directory } = await recorded();
    const owl = await recordable({ ...FOX, prompt: "an owl" });
    const before = await readdir(directory);
    for (const images of [[], [Buffer.from("no picture")]])
      expect(await recordings.keep(owl, { images, modelVersion: null })).toBe("unusable");
    expect(await readdir(directory)).toEqual(before);
  });

  it("[REPLAY-5] lose what a killed process has half written when the next one records, and nothing else", async () => {
    const { directory, json, picture } = await recorded();
    const [name = "", image = ""] = [json, picture].map((path) => path.split("/").at(-1));
    const others = ["README.md", "owl.png", ".gitattributes"];
    for (const each of others) await writeFile(join(directory, each), "");
    const stem = name.replace("red-fox", "red-owl").replace(".json", "");
    const unfinished = [
      `${stem}-0123abcd.png`,
      image.replace(/-[0-9a-f]{8}\.png/, "-0123abcd.png"),
      `.${stem}.json.0123456789ab.partial`,
    ].map((each) => join(directory, each));
    for (const each of unfinished) await writeFile(each, "");
    // Another process may be about to write the JSON file that names it.
    await Recordings.open(directory, inspector, true);
    expect(await readdir(directory)).toHaveLength(8);
    for (const each of [...unfinished, picture]) await utimes(each, 1, 1);
    await Recordings.open(directory, inspector, false);
    expect(await readdir(directory)).toHaveLength(8);
    await Recordings.open(directory, inspector, true);
    expect((await readdir(directory)).sort()).toEqual([image, name, ...others].sort());
  });

  it("[REPLAY-4] keep an old picture whose JSON file is a link, which is not followed", async () => {
    const { directory, json, picture } = await recorded();
    const outside = join(await tempDir(), "outside.json");
    await writeFile(outside, "names no picture");
    await rm(json);
    await symlink(outside, json);
    await utimes(picture, 1, 1);
    await Recordings.open(directory, inspector, true);
    expect(await readdir(directory)).toHaveLength(2);
  });

  it("[REPLAY-4] are not looked for where there is no directory, a file, or a link", async () => {
    const directory = await tempDir();
    await writeFile(join(directory, "file"), "");
    await symlink(directory, join(directory, "link"));
    const open = (name: string, records: boolean) =>
      Recordings.open(join(directory, name), inspector, records);
    await expect(open("missing", false)).rejects.toMatchObject({
      code: "INVALID_CONFIG",
      advice: expect.stringContaining("--record"),
    });
    for (const records of [true, false]) {
      await expect(open("file", records)).rejects.toThrow(/it is no directory/);
      await expect(open("link", records)).rejects.toThrow(/it is a link/);
    }
    await open("missing/below", true);
    expect(await readdir(join(directory, "missing"))).toEqual(["below"]);
  });

  it("[REPLAY-6] ask no upstream while the price cannot be held, and blame the request only where a budget refuses", async () => {
    const upstream = new FakeUpstream("vendor");
    const failures = [
      new ImgbatchError("REALTIME_INSUFFICIENT_BALANCE", "The budget is $1 a day."),
      new StorageUnavailable("full", "The disk is full.", null),
    ];
    const recording = {
      leftMicroUsd: 100,
      queues: new Map(),
      hold: () => Promise.reject(failures.shift()),
      priceOf: () => 60,
      modelFor: () => "m",
      lock: async () => () => {},
      log: silentLog,
    };
    const entry = {
      type: "replay",
      name: "vendor",
      of: entryOf("procedural", {}),
      directory: await tempDir(),
      records: true,
      rateMultiplier: 1,
    } as const;
    const replay = await createReplayProvider(entry, upstream, { decoding: new Decoding(), recording });
    const told = () => replay.generate(FOX, NEVER).catch((error) => error);
    expect(await told()).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: "The budget is $1 a day.",
      retryable: false,
      cause: { code: "REALTIME_INSUFFICIENT_BALANCE" },
    });
    expect(await told()).toMatchObject({
      code: "PROVIDER_ITEM_FAILED",
      message: expect.stringMatching(/could not be held: The disk is full. Nothing was sent.$/),
      retryable: true,
      trouble: null,
    });
    expect([upstream.requests, recording.leftMicroUsd]).toEqual([[], 100]);
  });
});
