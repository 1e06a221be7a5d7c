import sharp from "sharp";
import { expect, it } from "vitest";
import { readImageHeader, shownSize } from "../../src/contract/image-formats.ts";
import { readOutput } from "../../src/domain/images/output-images.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { sharpInspector } from "../../src/imaging/sharp-images.ts";
import { thumbnail } from "../../src/imaging/thumbnail.ts";

it.each(["jpeg", "png", "webp"] as const)(
  "a %s that lies on its side has the width and height in which it is shown, as its thumbnail has",
  async (format) => {
    const picture = sharp({ create: { width: 60, height: 20, channels: 3, background: "red" } });
    for (const orientation of [1, 3, 6, 8]) {
      const bytes = await picture.clone().withMetadata({ orientation }).toFormat(format).toBuffer();
      const shown = orientation >= 5 ? [20, 60] : [60, 20];
      const { widthPx, heightPx } = shownSize(readImageHeader(bytes) ?? { widthPx: null, heightPx: null });
      expect([orientation, widthPx, heightPx]).toEqual([orientation, ...shown]);
      const decoding = new Decoding();
      const answer = { images: [bytes], modelVersion: "m" } as Parameters<typeof readOutput>[0];
      const [made] = await readOutput(answer, sharpInspector(decoding), {});
      expect([orientation, made?.facts.widthPx, made?.facts.heightPx]).toEqual([orientation, ...shown]);
      const small = readImageHeader((await thumbnail(bytes, 60, decoding)) ?? Buffer.alloc(0));
      expect((small?.widthPx ?? 0) > (small?.heightPx ?? 0)).toBe(orientation < 5);
    }
  },
);

it("a damaged EXIF block takes nothing from the size", async () => {
  const picture = sharp({ create: { width: 60, height: 20, channels: 3, background: "red" } });
  const bytes = await picture.withMetadata({ orientation: 6 }).jpeg().toBuffer();
  const exif = bytes.indexOf("Exif");
  for (const directory of [0, 0xffffffff]) {
    const damaged = Buffer.from(bytes);
    damaged.writeUInt32LE(directory, exif + 10);
    expect(readImageHeader(damaged)).toEqual({ mimeType: "image/jpeg", widthPx: 60, heightPx: 20 });
  }
});
