import { describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../../../src/contract/limits.ts";
import type { Line } from "../../../src/domain/jobs/take-in.ts";
import { Decoding } from "../../../src/imaging/decoding.ts";
import { sharpInspector } from "../../../src/imaging/sharp-images.ts";
import { systemClock } from "../../../src/kernel/clock.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { nativeLines } from "../../../src/server/native-api/jobs.ts";
import { modelEntry } from "../../support/entries.ts";
import { content, imagePart, picture } from "../../support/realtime.ts";
import { MODEL, openBeside } from "../../support/service.ts";
import { tempDir } from "../../support/temp-dir.ts";

const model = { ...modelEntry, id: MODEL };

type Seen = { key: string | null } & ({ prompt: string; images: string[] } | { problem: string });

/** Reads an input that arrives in chunks of this size. */
async function read(text: string | Buffer, chunkBytes = 1000, limits: object = {}): Promise<Seen[]> {
  const { stores, blobs } = await openBeside(await tempDir());
  const rules = {
    stores,
    clock: systemClock,
    limits: { ...DEFAULT_LIMITS, ...limits },
    features: { strictImageConfig: false },
    blobs,
  };
  const lines = nativeLines({ ...rules, inspector: sharpInspector(new Decoding()) });
  const bytes = Buffer.from(text);
  async function* chunks() {
    for (let at = 0; at < bytes.length; at += chunkBytes) yield bytes.subarray(at, at + chunkBytes);
  }
  const seen: Seen[] = [];
  for await (const line of lines(model, chunks(), { apiKeyId: "key", input: null, upstream: "u" }))
    seen.push(await shown(line));
  expect(await blobs.list("drafts/")).toEqual([]);
  return seen;
}

async function shown(line: Line): Promise<Seen> {
  if ("error" in line) return { key: line.key, problem: line.error.message };
  const images: string[] = [];
  for (const image of line.content.images) {
    expect(sha256Hex(await image.read())).toBe(image.sha256);
    images.push(image.sha256);
  }
  return { key: line.key, prompt: line.content.prompt, images };
}

describe("the lines of a job", () => {
  it("are read whatever chunks they come in, with blank ones left out", async () => {
    const line = (key: unknown, prompt: string) => JSON.stringify({ key, request: content(prompt) });
    const text = `\ufeff${line("a", "ein Fuchs, größer")}\r\n\n \t\r\n${line(["b"], "owl")}\n${JSON.stringify(content("bare"))}`;
    const expected = [
      { key: '"a"', prompt: "ein Fuchs, größer", images: [] },
      { key: '["b"]', prompt: "owl", images: [] },
      { key: null, prompt: "bare", images: [] },
    ];
    for (const chunkBytes of [1, 7, 100_000]) expect(await read(text, chunkBytes)).toEqual(expected);
    expect(await read(`${text}\n`)).toEqual(expected);
    expect(await read(" \n\n")).toEqual([]);
  });

  it("hold their large images on the disk, and their small ones too", async () => {
    const small = await picture({ widthPx: 20, heightPx: 20 });
    const large = await noisy();
    const request = content("edit", {}, [imagePart(large), imagePart(small), imagePart(large)]);
    const text = `${JSON.stringify({ request, key: "x" })}\n${JSON.stringify({ request: content("next") })}`;
    expect(await read(text, 64 * 1024)).toEqual([
      { key: '"x"', prompt: "edit", images: [large, small, large].map(sha256Hex) },
      { key: null, prompt: "next", images: [] },
    ]);
  });

  it("[LINES-4] that cannot be read do not hurt the others", async () => {
    const good = JSON.stringify({ key: "good", request: content("fox") });
    const broken = [
      '{"key":"a","request":{',
      "[1]",
      '"text"',
      "null",
      '{"key":"b"}',
      '{"key":"c","request":7}',
      '{"key":"d","request":{"contents":"no"}}',
      Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
    ];
    const text = Buffer.concat([...broken, good].flatMap((line) => [Buffer.from(line), Buffer.from("\n")]));
    const seen = await read(text, 5);
    expect(seen.slice(0, -1).map((line) => "problem" in line)).toEqual(broken.map(() => true));
    expect(seen.map(({ key }) => key)).toEqual([null, null, null, null, '"b"', '"c"', '"d"', null, '"good"']);
    expect(seen.at(-1)).toMatchObject({ prompt: "fox" });
    expect(seen.flatMap((line) => ("problem" in line ? line.problem : [])).join()).not.toContain("body");
  });

  it("[LINES-4] that are too large are skipped to their end", async () => {
    const large = JSON.stringify({ key: "large", request: content("x".repeat(5000)) });
    const good = JSON.stringify({ key: "good", request: content("fox") });
    const [first, second] = await read(`${large}\n${good}`, 300, { realtimeBodyBytes: 2048 });
    expect(first).toEqual({ key: null, problem: "The line is larger than 2048 bytes." });
    expect(second).toMatchObject({ key: '"good"', prompt: "fox" });
  });
});

/** A picture of more than a megabyte. */
async function noisy(): Promise<Buffer> {
  const { default: sharp } = await import("sharp");
  const [width, height] = [800, 700];
  const raw = Buffer.alloc(width * height * 3);
  let state = 1;
  for (let i = 0; i < raw.length; i++) {
    state = (state * 1103515245 + 12345) & 0x7fffffff;
    raw[i] = state >> 16;
  }
  return sharp(raw, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
}
