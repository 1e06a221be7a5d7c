import sharp from "sharp";
import {
  animation,
  apngChunks,
  baselineScans,
  blackPng,
  codeGroups,
  extendedWebp,
  manyComments,
  manyScans,
  packedChunks,
  pngChunk,
  riff,
  withGainMap,
} from "./images.mjs";

const png = (make) => ({ mimeType: "image/png", make });
const jpeg = (make) => ({ mimeType: "image/jpeg", make });
const webp = (make) => ({ mimeType: "image/webp", make });
const flat = (width, height, channels = 3) =>
  sharp({
    create: { width, height, channels, background: { r: 40, g: 60, b: 90, alpha: 0.5 } },
    limitInputPixels: false,
  });
const lossless = { lossless: true, effort: 0 };
const extra = (chunks) => blackPng(8, 8, { extra: chunks });

/** Noise of blocks: many colours, and a file of some MB. */
function blocks(width, height) {
  const data = Buffer.alloc(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const colour = Math.imul((x >> 6) + (y >> 6) * 4096, 2_654_435_761) >>> 0;
      data.writeUIntBE(colour >>> 8, (y * width + x) * 3, 3);
    }
  }
  return sharp(data, { raw: { width, height, channels: 3 }, limitInputPixels: false });
}

/** Images by name, the worst of their kind: beyond the limits, and just within. */
export const KINDS = {
  "PNG of one row, 16 bits": png(() => blackPng(64e6, 1, { bits: 16, color: 6 })),
  "PNG of one column": png(() => blackPng(1, 64e6, { bits: 16, color: 6 })),
  "PNG as wide as can be, 16 bits": png(() => blackPng(16_384, 3906, { bits: 16, color: 6 })),
  "interlaced PNG, 16 bits": png(() => blackPng(8000, 8000, { bits: 16, color: 6, interlaced: true })),
  "interlaced PNG, 16 bits, no alpha": png(() =>
    blackPng(8000, 8000, { bits: 16, color: 2, interlaced: true }),
  ),
  "interlaced PNG as large as can be, 16 bits": png(() =>
    blackPng(7240, 7240, { bits: 16, color: 6, interlaced: true }),
  ),
  "interlaced PNG just small enough, 16 bits": png(() =>
    blackPng(5910, 5910, { bits: 16, color: 6, interlaced: true }),
  ),
  "interlaced PNG": png(() => blackPng(8000, 8000, { bits: 8, color: 6, interlaced: true })),
  "cut PNG": png(() => blackPng(8000, 8000, { bits: 16, color: 6 }).subarray(0, -8000)),
  "PNG with 1000 packed texts": png(() => extra(packedChunks("zTXt", 1000, 7.9e6))),
  "PNG with 100 packed texts": png(() => extra(packedChunks("zTXt", 100, 7.9e6))),
  "PNG with packed texts of 15 MB": png(() => extra(packedChunks("iTXt", 2, 7.9e6))),
  "PNG with a packed profile": png(() => extra(packedChunks("iCCP", 1, 4e9))),
  "PNG of tiny chunks": png(() => extra([Buffer.alloc(12 * 800_000, pngChunk("prVt"))])),
  "PNG of empty data chunks": png(() => extra([Buffer.alloc(12 * 99_000, pngChunk("IDAT"))])),
  APNG: png(() => extra(apngChunks(40_000))),
  "JPEG of 20,000 scans": jpeg(() => manyScans(8000, 8000, 20_000)),
  "small JPEG of 20,000 scans": jpeg(() => manyScans(4000, 3900, 20_000)),
  "JPEG of 100 scans": jpeg(() => manyScans(8000, 8000, 100)),
  "JPEG of 100 scans in colour": jpeg(() => manyScans(8000, 8000, 100, { components: 3 })),
  "JPEG of four components": jpeg(() => manyScans(8000, 8000, 99, { components: 4 })),
  "sequential JPEG of 39 scans": jpeg(() => baselineScans(8000, 8000, 39)),
  "JPEG of restarts": jpeg(() => baselineScans(8000, 8000, 1, { components: 1, restartEvery: 1 })),
  "JPEG whose height follows": jpeg(() => baselineScans(8000, 8000, 1, { components: 1, heightSaid: 0 })),
  "JPEG of comments": jpeg(() => manyComments(2.5e6)),
  "cut JPEG": jpeg(() => manyScans(8000, 8000, 90).subarray(0, -2000)),
  "JPEG with a gain map": jpeg(async () =>
    withGainMap(await flat(5700, 5700).jpeg().toBuffer(), await flat(8, 8).jpeg().toBuffer()),
  ),
  "progressive JPEG": jpeg(() =>
    blocks(8000, 8000).jpeg({ progressive: true, quality: 40, chromaSubsampling: "4:4:4" }).toBuffer(),
  ),
  "lossless WebP": webp(() => blocks(16_000, 4000).webp(lossless).toBuffer()),
  "lossless WebP of 65,536 code groups": webp(() => codeGroups(1024, 1024, 65_536)),
  "lossless WebP of 52,000 large code groups": webp(() => codeGroups(1024, 1024, 52_000, { large: true })),
  "lossless WebP of 4096 large code groups": webp(() =>
    codeGroups(4000, 1600, 4096, { tile: 5, large: true }),
  ),
  "lossy WebP": webp(() => blocks(16_000, 4000).webp({ effort: 0, quality: 20 }).toBuffer()),
  "lossy WebP with alpha": webp(() => flat(16_000, 4000, 4).webp({ effort: 0 }).toBuffer()),
  "WebP of 1000 frames": webp(async () => {
    const frame = { width: 252, height: 252 };
    return animation(await flat(252, 252).webp(lossless).toBuffer(), 1000, frame, frame);
  }),
  "WebP of 1001 frames": webp(async () =>
    animation(await flat(1, 1).webp().toBuffer(), 1001, { width: 1, height: 1 }),
  ),
  "WebP of two large frames": webp(async () => {
    const frame = { width: 4600, height: 4600 };
    return animation(await flat(4600, 4600).webp(lossless).toBuffer(), 2, frame, frame);
  }),
  "WebP of tiny chunks": webp(async () => {
    const picture = (await flat(8, 8).webp().toBuffer()).subarray(12);
    return extendedWebp(8, 8, 0, [picture, Buffer.alloc(8 * 1_200_000, riff("zzzz"))]);
  }),
};
