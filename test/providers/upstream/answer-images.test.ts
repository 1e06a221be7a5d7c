import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { AnswerImages } from "../../../src/providers/upstream/answer-images.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { never } from "./scripted-server.ts";

const MIB = 2 ** 20;

function begin(signal = never, deps = {}): AnswerImages {
  const images = new AnswerImages("painter", deps, signal);
  onTestFinished(() => images.discard());
  return images;
}

describe("the memory of all answers", () => {
  it("is shared without a deadlock: each of many that hold a part of it gets the rest in the end", async () => {
    const answers = Array.from({ length: 20 }, () => begin());
    let ended = 0;
    const readings = answers.map(async (answer) => {
      for (let part = 0; part < 32; part++) await answer.take(MIB);
      answer.finish();
      await answer.discard();
      ended++;
    });
    await Promise.all(readings);
    expect(ended).toBe(20);
  });

  it("is waited for until the signal of the request, and what one held is free then", async () => {
    const first = begin();
    await first.take(MIB);
    const holder = begin();
    await holder.take(150 * MIB);
    const over = new AbortController();
    const late = begin(over.signal);
    const waiting = late.take(64 * MIB);
    over.abort(new Error("too late"));
    await expect(waiting).rejects.toThrow("too late");
    await late.discard();
    const next = begin();
    const taken = next.take(64 * MIB);
    await holder.discard();
    await taken;
  });
});

describe("the images of an answer", () => {
  it("go to the disk when they are too large for the memory, and are gone when they are discarded", async () => {
    const directory = await tempDir();
    const blobs = fileBlobs(directory);
    const images = begin(never, { draft: () => blobs.draft() });
    const made = [];
    for (const fill of [1, 2, 3]) {
      const sink = images.open();
      for (let part = 0; part < 10; part++) await sink.write(Buffer.alloc(MIB, fill));
      made.push(sink.image);
    }
    expect(made.map((image) => [Buffer.isBuffer(image), image.length])).toEqual([
      [true, 10 * MIB],
      [false, 10 * MIB],
      [false, 10 * MIB],
    ]);
    const [, second] = made;
    if (second === undefined || Buffer.isBuffer(second)) throw new Error("the second image is in memory");
    expect((await second.read()).equals(Buffer.alloc(10 * MIB, 2))).toBe(true);
    expect(await second.lend(async (bytes) => bytes[10 * MIB - 1])).toBe(2);
    const drafts = async () => (await readdir(join(directory, "drafts"))).length;
    expect(await drafts()).toBe(2);
    await images.discard();
    expect(await drafts()).toBe(0);
  });

  it("have at most 64 MiB each", async () => {
    const directory = await tempDir();
    const blobs = fileBlobs(directory);
    const sink = begin(never, { draft: () => blobs.draft() }).open();
    const write = async () => {
      for (let part = 0; part < 65; part++) await sink.write(Buffer.alloc(MIB));
    };
    await expect(write()).rejects.toMatchObject({ code: "INVALID_IMAGE_OUTPUT", trouble: "ambiguous" });
  });
});
