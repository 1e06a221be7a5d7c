import { readdir } from "node:fs/promises";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { receiveImage, type SentTexts } from "../../../src/domain/images/sent-image.ts";
import type { Base64Rules } from "../../../src/kernel/base64.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { BodyBudgets, BodyReservation } from "../../../src/server/request-body/body-budgets.ts";
import { ImageExtraction } from "../../../src/server/request-body/image-extraction.ts";
import { plainFormat } from "../../../src/server/request-body/json-reader.ts";
import { fileBlobs } from "../../../src/storage/blobs/file-blobs.ts";
import { tempDir } from "../../support/temp-dir.ts";

const MAX_BYTES = 60_000;
/** The images of larger bodies go to the disk. */
const WHOLE_BYTES = 25_000;
/** Base64 of bytes of every value. */
const base64 = (size: number, seed = 1) =>
  Buffer.from(Uint8Array.from({ length: size }, (_, i) => (i * seed + (i >> 8)) % 256)).toString("base64");

const FORMAT = { ...plainFormat({ images: ["image"], a: { b: "image" } }, "INVALID_JSON"), images: 9 };

async function openIntake(rules: Base64Rules = "strict", wholeBytes = WHOLE_BYTES) {
  const root = await tempDir();
  const blobs = fileBlobs(root);
  const images = { base64: rules, maxBytes: MAX_BYTES, blobs };
  const reservation = new BodyReservation(new BodyBudgets(), 0, 1000);
  const intake = new ImageExtraction(FORMAT, images, reservation, wholeBytes);
  return { intake, blobs, drafts: () => readdir(join(root, "drafts")).catch(() => []) };
}

/** Sends a body in chunks that end at these places. */
async function send(intake: ImageExtraction, body: Buffer, cuts: readonly number[] = []) {
  const places = [0, ...cuts.map((cut) => cut % body.length).sort((a, b) => a - b), body.length];
  for (const [i, end] of places.slice(1).entries()) await intake.add(body.subarray(places[i], end));
  return intake.end();
}

/** The domain's view of the images of a body: their hashes, or what is wrong with each. */
function judge({ value, sent }: { value: unknown; sent: SentTexts }, rules: Base64Rules) {
  const { images } = value as { images: unknown[] };
  return images.map((data) => {
    if (typeof data !== "string") return data;
    const image = receiveImage(data, { maxBytes: MAX_BYTES, base64: rules, sent });
    return typeof image === "string" ? image : [image.sizeBytes, image.sha256];
  });
}

/** A large body and the same as a small one have the same outcome, and leave nothing. */
async function compare(body: Buffer, rules: Base64Rules, cuts: readonly number[]): Promise<void> {
  const small = await openIntake(rules, body.length);
  const expected = await told(send(small.intake, body).then((taken) => judge(taken, rules)));
  const { intake, drafts } = await openIntake(rules);
  expect(await told(send(intake, body, cuts).then((taken) => judge(taken, rules)))).toEqual(expected);
  await intake.discard();
  expect(await drafts()).toEqual([]);
}

const told = (work: Promise<unknown>) =>
  work.catch(({ code, message }) => {
    if (code === undefined) throw new Error(message);
    return [code, message];
  });

describe("taking a large body", () => {
  const whole = base64(30_000);
  const TEXTS: Record<string, string | Buffer> = {
    "plain Base64": whole,
    "slashes written as PHP does": whole.replaceAll("/", "\\/"),
    "letters as escapes": whole.replaceAll("A", "\\u0041"),
    "the URL alphabet": Buffer.from(whole, "base64").toString("base64url"),
    "no padding": base64(30_001).replace(/=+$/, ""),
    "something after the padding": `${base64(30_001)}AAAA`,
    "one wrong character at the very end": `${whole.slice(0, -1)}@`,
    "bits that mean nothing": base64(30_001).replace(/.==$/, "/=="),
    "a blank at the beginning": ` ${whole}`,
    "a data URL": `data:image/png;base64,${whole}`,
    "as much as is allowed": base64(MAX_BYTES),
    "a byte too much": base64(MAX_BYTES + 1),
    "far too much": base64(3 * MAX_BYTES),
    "too much of what is not Base64": "狐".repeat(3 * MAX_BYTES),
    "not too much of what takes many bytes": "狐".repeat(MAX_BYTES),
    "pairs of surrogates": "🦊".repeat(MAX_BYTES / 2),
    "half a pair": "\\ud83e".repeat(9000),
    quotes: '\\"'.repeat(20_000),
    "a line break": `${whole}\n`,
    "a NUL": `${whole}\0${whole}`,
    "an escape that is none": `${whole}\\x`,
    "an escape cut short": `${whole}\\u00`,
    "an end in the middle of an escape": `${whole}\\`,
    "bytes that are no UTF-8": Buffer.concat([Buffer.from(whole), Buffer.from([0xc3]), Buffer.from(whole)]),
    "half a character at its end": Buffer.concat([Buffer.from(whole), Buffer.from([0xe7, 0x8b])]),
    "a line break, and no UTF-8": Buffer.concat([Buffer.from(`${whole}\n`), Buffer.from([0xff])]),
  };

  it.each(Object.keys(TEXTS))("a text with %s has the same outcome as in a small body", async (name) => {
    const text = Buffer.from(TEXTS[name] as string);
    const bodies = [
      Buffer.concat([Buffer.from('{"images":["'), text, Buffer.from('",7,"short"],"more":[]}')]),
      // Cut in the middle of the text.
      Buffer.concat([Buffer.from('{"images":["'), text]),
    ];
    for (const [i, body] of bodies.entries()) {
      for (const rules of i === 0 ? (["strict", "lenient"] as const) : (["strict"] as const)) {
        await compare(body, rules, [13, 20_000, body.length - 30, body.length - 9]);
      }
    }
  });

  it("something odd anywhere in a text has the same outcome as in a small body", async () => {
    const odd = fc.constantFrom("\n", "\0", "\x7f", "@", "=", "é", "\\", "\\u0000", "\\/", '\\"', "A");
    const check = (rules: Base64Rules, wrong: string, near: number, isAtEnd: boolean, cuts: number[]) => {
      const at = isAtEnd ? whole.length - near : near;
      const text = whole.slice(0, at) + wrong + whole.slice(at + wrong.length);
      return compare(Buffer.from(`{"images":["${text}"]}`), rules, cuts);
    };
    const rules = fc.constantFrom<Base64Rules>("strict", "lenient");
    const near = fc.nat({ max: 6 });
    const cuts = fc.array(fc.oneof(fc.nat({ max: 30 }), fc.nat()), { maxLength: 5 });
    await fc.assert(fc.asyncProperty(rules, odd, near, fc.boolean(), cuts, check), { numRuns: 60 });
  });

  it("wherever its chunks end, the bytes come out whole", async () => {
    const text = base64(20_000).replaceAll("/", "\\/").replaceAll("B", "\\u0042");
    const body = Buffer.from(`{"images":["${text}","${text}"]}`);
    const bytes = Buffer.from(base64(20_000), "base64");
    const check = async (cuts: readonly number[]) => {
      const { intake } = await openIntake();
      const taken = await send(intake, body, cuts);
      const expected = [bytes.length, sha256Hex(bytes)];
      expect(judge(taken, "strict")).toEqual([expected, expected]);
      for (const { content } of taken.sent.values()) {
        if (typeof content === "string") throw new Error(content);
        expect((await content.read()).equals(bytes)).toBe(true);
        expect(await content.lend(async (lent) => lent.equals(bytes))).toBe(true);
      }
      await intake.discard();
    };
    await fc.assert(fc.asyncProperty(fc.array(fc.nat(), { maxLength: 12 }), check), { numRuns: 25 });
  });

  it("keeps equal images once, and of several under one name the last counts", async () => {
    const root = await tempDir();
    const images = { base64: "strict", maxBytes: MAX_BYTES, blobs: fileBlobs(root) } as const;
    const room = new BodyReservation(new BodyBudgets(), 0, 1000);
    const intake = new ImageExtraction(FORMAT, images, room, WHOLE_BYTES);
    const [one, two] = [base64(20_000, 3), base64(20_000, 5)];
    const body = `{"a":{"b":"${one}","b":"${two}"},"a":{"b":"${two}","b":"${two}","b":"${one}"}}`;
    const { value, sent } = await send(intake, Buffer.from(body));
    expect(await readdir(join(root, "drafts"))).toHaveLength(2);
    const { b } = (value as { a: { b: string } }).a;
    expect(sent.get(b)?.content).toMatchObject({ sha256: sha256Hex(Buffer.from(one, "base64")) });
    await intake.discard();
    expect(await readdir(join(root, "drafts"))).toEqual([]);
  });

  it("that is given up in the middle is removed at once, whatever it waits for", async () => {
    const { intake, drafts } = await openIntake();
    await intake.add(Buffer.alloc(WHOLE_BYTES, " "));
    const begun = base64(45_000);
    const work = intake.add(Buffer.from(`{"images":["${begun}","${base64(45_000, 3)}","${begun}`));
    await intake.discard();
    await expect(Promise.resolve(work)).rejects.toThrow("ended early");
    expect(await drafts()).toEqual([]);
  });

  it("an image that the disk refuses is reported, and nothing is left", async () => {
    const failure = new Error("disk full");
    const { blobs, drafts } = await openIntake();
    let left = 1;
    const draft = () => {
      const real = blobs.draft();
      const write = (bytes: Uint8Array) => (left-- > 0 ? real.write(bytes) : Promise.reject(failure));
      return { ...real, write };
    };
    const images = { base64: "strict", maxBytes: MAX_BYTES, blobs: { draft } } as const;
    const room = new BodyReservation(new BodyBudgets(), 0, 1000);
    const intake = new ImageExtraction(FORMAT, images, room, WHOLE_BYTES);
    const body = `{"images":["${base64(40_000)}","${base64(40_000, 3)}"]}`;
    await expect(send(intake, Buffer.from(body))).rejects.toBe(failure);
    expect(await drafts()).toHaveLength(1);
    await intake.discard();
    expect(await drafts()).toEqual([]);
  });
});
