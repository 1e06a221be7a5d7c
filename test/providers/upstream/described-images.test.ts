import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { IMAGE_MIME_TYPES, type ImageMimeType } from "../../../src/contract/images/image-types.ts";
import { isBareImage } from "../../../src/imaging/bare-image.ts";
import { asItemProvider } from "../../../src/providers/upstream/item-provider.ts";
import { entryOf } from "../../support/upstream-adapter.ts";
import { depsWith, imageRequest, never } from "./scripted-server.ts";

const FACTS = {
  modelVersion: "painter-7",
  seed: 4711,
  usage: { inputTokens: 1, outputTokens: 2, costMicroUsd: 41_200 },
};

/** Returns the file that is kept of an upstream's image. */
async function kept(image: Buffer, facts: object = FACTS): Promise<Buffer> {
  const entry = entryOf("openai", { baseUrl: "http://127.0.0.1:1" });
  const takes = { maxReferences: 0, ratios: "any", tiers: "any", mimeTypes: "any", seeds: true } as const;
  const generate = async () => ({ images: [image], ...FACTS, ...facts });
  const adapter = { address: "", takes, generate, probe: async () => {}, close: async () => {} };
  const request = imageRequest({ earlier: "a forest", prompt: "a red fox, 狐" });
  const { images } = await asItemProvider(entry, adapter, depsWith()).generate(request, never);
  return images[0] ?? Buffer.alloc(0);
}

async function plain(mimeType: ImageMimeType, alpha = false): Promise<Buffer> {
  const background = { r: 200, g: 80, b: 40, alpha: 0.5 };
  const image = sharp({ create: { width: 33, height: 21, channels: alpha ? 4 : 3, background } });
  if (mimeType === "image/png") return image.withIccProfile("p3").png().toBuffer();
  return mimeType === "image/jpeg"
    ? image.withIccProfile("p3").jpeg().toBuffer()
    : image.webp({ lossless: alpha }).toBuffer();
}

/** A PNG chunk or, in the other order of bytes and without a checksum, a WebP one. */
function chunk(type: string, text: string, isPng: boolean): Buffer {
  const head = Buffer.alloc(8);
  isPng ? head.writeUInt32BE(text.length) : head.writeUInt32LE(text.length);
  const letters = Buffer.from(type, "latin1");
  const length = head.subarray(0, 4);
  const order = isPng ? [length, letters] : [letters, length];
  return Buffer.concat([...order, Buffer.from(text), Buffer.alloc(isPng ? 4 : text.length % 2)]);
}

function segment(marker: number, text: string): Buffer {
  const head = Buffer.from([0xff, marker, 0, 2 + text.length]);
  return Buffer.concat([head, Buffer.from(text, "latin1")]);
}

function insert(into: Buffer, at: number, piece: Buffer): Buffer {
  return Buffer.concat([into.subarray(0, at), piece, into.subarray(at)]);
}

async function webpWith(piece: Buffer): Promise<Buffer> {
  const webp = Buffer.concat([await plain("image/webp"), piece]);
  webp.writeUInt32LE(webp.length - 8, 4);
  return webp;
}

describe("the file of an upstream's image", () => {
  it.each(IMAGE_MIME_TYPES)(
    "[UPSTREAM-16] says how it was made when it says nothing: %s",
    async (mimeType) => {
      for (const alpha of mimeType === "image/jpeg" ? [false] : [false, true]) {
        const before = await plain(mimeType, alpha);
        const after = await kept(before);
        expect((await sharp(after).raw().toBuffer()).equals(await sharp(before).raw().toBuffer())).toBe(true);
        const { exif: _, comments, size: _size, ...facts } = await sharp(after).metadata();
        const { exif, comments: none, size, ...plainFacts } = await sharp(before).metadata();
        expect([size, exif, none]).toEqual([before.length, undefined, undefined]);
        expect(facts).toEqual(plainFacts);
        // UTF-16 in EXIF.
        const text =
          mimeType === "image/png"
            ? after.toString()
            : Buffer.from(after).toString("latin1").replaceAll("\0", "");
        expect(text).toContain("a forest\na red fox");
        for (const words of ["4711", "image-model", "painter-7", "33x21", "Request cost: $0.0412"])
          expect(text).toContain(words);
        if (mimeType === "image/png") {
          expect(comments?.map(({ keyword }) => keyword)).toEqual(["parameters", "Software", "imgbatch"]);
          expect(JSON.parse(comments?.at(-1)?.text ?? "")).toEqual({
            provider: "local",
            prompt: "a forest\na red fox, 狐",
            model: "image-model",
            model_version: "painter-7",
            seed: 4711,
            index: 0,
            request_cost_usd: 0.0412,
          });
          // Everything that came is still there, in one piece before the new texts and one behind them.
          expect(after.subarray(0, 33).equals(before.subarray(0, 33))).toBe(true);
          expect(after.subarray(33 - before.length).equals(before.subarray(33))).toBe(true);
        }
        expect(await kept(after)).toBe(after);
      }
    },
  );

  it("[UPSTREAM-16] does not name what the upstream does not report", async () => {
    const text = (
      await kept(await plain("image/png"), { modelVersion: null, seed: null, usage: null })
    ).toString();
    expect(text).toContain("a red fox, 狐\nSize: 33x21, Model: image-model");
    expect(text).not.toContain("Seed:");
  });

  it("[UPSTREAM-17] stays byte for byte as it came when it holds anything beside a picture", async () => {
    const [png, jpeg, webp] = await Promise.all(IMAGE_MIME_TYPES.map((type) => plain(type)));
    const end = (png?.length ?? 0) - 12;
    const files = [
      ...["caBX", "tEXt", "zTXt", "iTXt", "eXIf", "unKn"].map((type) =>
        insert(png as Buffer, 33, chunk(type, "jumb", true)),
      ),
      insert(png as Buffer, end, chunk("caBX", "jumb", true)),
      Buffer.concat([png as Buffer, Buffer.from("behind the end")]),
      (png as Buffer).subarray(0, end),
      segment(0xeb, "JP\0\0jumb c2pa"),
      segment(0xe1, "Exif\0\0MM"),
      segment(0xe1, "http://ns.adobe.com/xap/1.0/\0<x/>"),
      segment(0xe2, "MPF\0MM"),
      segment(0xed, "Photoshop 3.0\0"),
      segment(0xfe, "a comment"),
    ].map((each) => (each[0] === 0xff ? insert(jpeg as Buffer, 2, each) : each));
    files.push(Buffer.concat([jpeg as Buffer, Buffer.from("behind the end")]));
    files.push((jpeg as Buffer).subarray(0, 400), (webp as Buffer).subarray(0, -2));
    for (const type of ["C2PA", "EXIF", "XMP ", "unKn"])
      files.push(await webpWith(chunk(type, "jumb!", false)));
    files.push(Buffer.concat([webp as Buffer, Buffer.from("behind the end")]));
    files.push(Buffer.from("no image"), Buffer.alloc(0));
    for (const file of files)
      expect([file.length, (await kept(file)) === file || file.length === 0]).toEqual([file.length, true]);
  });

  it("[UPSTREAM-17] no damaged file is taken for a bare one, or breaks the reading", async () => {
    for (const mimeType of IMAGE_MIME_TYPES) {
      const image = await plain(mimeType);
      for (let length = 0; length < image.length; length++) {
        expect([length, isBareImage(image.subarray(0, length), mimeType)]).toEqual([length, false]);
      }
      expect(isBareImage(image, mimeType)).toBe(true);
    }
  });
});
