import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { ImageMimeType } from "../../src/contract/image-formats.ts";
import { InvalidImageError } from "../../src/domain/ports/image-inspector.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { seededRandom } from "../soak/random.ts";
import { mutate } from "./mutate.ts";

const inspector = sharpInspector(new Decoding());

/** More by `IMGBATCH_MUTANTS=5000`; from another seed by `IMGBATCH_MUTANT_SEED=1`. */
const COUNT = Number(process.env.IMGBATCH_MUTANTS ?? 300);
const FIRST_SEED = Number(process.env.IMGBATCH_MUTANT_SEED ?? 20_300_102);
const AT_ONCE = 8;

const noise = (width: number, height: number, seed: number) => {
  const random = seededRandom(seed);
  const data = Buffer.from(Array.from({ length: width * height * 4 }, () => random() * 256));
  return sharp(data, { raw: { width, height, channels: 4 } });
};
const frames = (width: number, height: number) =>
  Promise.all([3, 17, 91].map((step) => noise(width, height, step).png().toBuffer()));

const SOURCES: [name: string, mimeType: ImageMimeType, make: () => Promise<Buffer>][] = [
  ["PNG", "image/png", () => noise(48, 32, 31).png().toBuffer()],
  [
    "interlaced PNG with a palette",
    "image/png",
    () => noise(48, 32, 5).png({ palette: true, progressive: true }).toBuffer(),
  ],
  [
    "JPEG",
    "image/jpeg",
    () =>
      noise(48, 32, 31)
        .withExif({ IFD0: { Software: "x" } })
        .jpeg()
        .toBuffer(),
  ],
  ["progressive JPEG", "image/jpeg", () => noise(48, 32, 31).jpeg({ progressive: true }).toBuffer()],
  ["WebP", "image/webp", () => noise(48, 32, 31).webp().toBuffer()],
  ["lossless WebP", "image/webp", () => noise(48, 32, 31).webp({ lossless: true }).toBuffer()],
  [
    "animated WebP",
    "image/webp",
    async () =>
      sharp(await frames(32, 24), { join: { animated: true } })
        .webp()
        .toBuffer(),
  ],
];

describe("damaged images", () => {
  it.each(SOURCES)(
    `${COUNT} mutants of a %s are refused, or are what the inspector says they are`,
    async (_, mimeType, make) => {
      const whole = await make();
      expect(await inspect(whole)).toBe("whole");
      const outcomes = { refused: 0, whole: 0 };
      let next = 0;
      const worker = async () => {
        for (let n = next++; n < COUNT; n = next++) {
          const seed = FIRST_SEED + n;
          const { kind, bytes } = mutate(whole, seed, mimeType);
          const outcome = await inspect(bytes).catch((error) => {
            throw new Error(`seed ${seed}, ${kind}: ${error}`, { cause: error });
          });
          outcomes[outcome]++;
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
      expect(outcomes.refused + outcomes.whole).toBe(COUNT);
      // Damage within pixels of a lossy format is another whole image; most damage is seen.
      expect(outcomes.refused).toBeGreaterThan(COUNT / 4);
    },
    Math.max(30_000, COUNT * 20),
  );
});

/** Rejects with anything but a refusal, and when the facts differ from what a full decode of all frames gives. */
async function inspect(bytes: Buffer): Promise<"refused" | "whole"> {
  let facts: Awaited<ReturnType<typeof inspector.inspect>>;
  try {
    facts = await inspector.inspect(bytes, { maxPixels: 1_000_000 });
  } catch (error) {
    if (error instanceof InvalidImageError) return "refused";
    throw error;
  }
  const { info } = await sharp(bytes, { failOn: "warning", animated: true, limitInputPixels: 1_000_000 })
    .raw()
    .toBuffer({ resolveWithObject: true });
  const height = info.pageHeight ?? info.height;
  if (info.width === facts.widthPx && height === facts.heightPx) return "whole";
  throw new Error(
    `decodes to ${info.width}x${height}, the inspector said ${facts.widthPx}x${facts.heightPx}`,
  );
}
