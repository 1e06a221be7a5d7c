import type { Sharp } from "sharp";
import { type ImageMimeType, TIER_FACTORS, tierOf } from "../../contract/image-formats.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { DECODE_SECONDS, Decoding } from "../../imaging/decoding.ts";
import { addMetadata } from "../../imaging/picture-metadata.ts";
import { sharp } from "../../imaging/sharp-config.ts";
import { escapeMarkup, renderText } from "../../imaging/text.ts";
import { chroma, type Hex, lightness, mix, tone } from "./color.ts";
import type { Ink } from "./drawing.ts";
import { createPalette, type Palette } from "./palette.ts";
import { type Plan, pictureSeed, planScene } from "./plan.ts";
import { Random } from "./random.ts";
import { drawLayers, drawPattern, drawSubjects, groundOf, round, type Scene } from "./scene.ts";

/** A reference image as an SVG element without its size, and its width over its height. */
interface Card {
  ratio: number;
  element: string;
}

/** The longest side of a single reference in a picture at 1K, and that of one of several, in pixels. */
const CARD_PX = { single: 820, several: 480 };

/** Draws the references of a request as framed cards. */
async function drawReferences(
  scene: Scene,
  { references }: ImageRequest,
  tier: number,
  { signal, decoding }: { signal: AbortSignal; decoding: Decoding },
): Promise<void> {
  const { w, h } = scene;
  const count = references.length;
  const longest = (count === 1 ? CARD_PX.single : CARD_PX.several) * tier;
  const cards: Card[] = [];
  for (const reference of references) {
    signal.throwIfAborted();
    const { data, info } = await reference.lend((bytes) =>
      decoding.decode(bytes, { maxPixels: FIXED_LIMITS.referencePixels }, (decodable) =>
        shrink(decodable, longest),
      ),
    );
    const element = `<image preserveAspectRatio="none" href="data:image/jpeg;base64,${data.toString("base64")}"`;
    cards.push({ ratio: info.width / info.height, element });
  }
  const random = scene.random.fork("cards");
  const rows = Math.max(1, Math.round(Math.sqrt((count * h) / w)));
  const columns = Math.ceil(count / rows);
  const cell = { w: (w * 0.94) / columns, h: (h * 0.94) / rows };
  for (const [i, card] of cards.entries()) {
    const row = Math.floor(i / columns);
    const inRow = Math.min(columns, count - row * columns);
    const x = w / 2 + ((i % columns) - (inRow - 1) / 2) * cell.w;
    const y = h * 0.02 + (row + 0.5) * cell.h;
    const width = Math.min(cell.w * 0.84, cell.h * 0.84 * card.ratio);
    drawCard(scene, card, { x, y, width, turn: count === 1 ? 0 : random.between(-3.5, 3.5) });
  }
}

/** Turns an image upright and shrinks it. */
function shrink(bytes: Buffer, longest: number) {
  return sharp(bytes)
    .autoOrient()
    .resize(longest, longest, { fit: "inside", withoutEnlargement: true })
    .flatten({ background: "#ffffff" })
    .toColourspace("srgb")
    .jpeg({ quality: 90 })
    .timeout({ seconds: DECODE_SECONDS })
    .toBuffer({ resolveWithObject: true });
}

function drawCard(
  { shapes, unit }: Scene,
  { ratio, element }: Card,
  { x, y, width, turn }: { x: number; y: number; width: number; turn: number },
): void {
  const height = width / ratio;
  const mat = Math.max(5, Math.min(width, height) * 0.035);
  const frame = (shift: number, paint: string) =>
    `<rect x="${round(shift - mat)}" y="${round(shift - mat)}" width="${round(width + mat * 2)}" height="${round(height + mat * 2)}" rx="2" ${paint}/>`;
  const place = `translate(${round(x)} ${round(y)})rotate(${round(turn)})translate(${round(-width / 2)} ${round(-height / 2)})`;
  const shadow = frame(unit * 0.011, 'fill="#0c0d1c" fill-opacity="0.3"');
  const card = `${element} width="${round(width)}" height="${round(height)}"/>`;
  shapes.push(`<g transform="${place}">${shadow}${frame(0, 'fill="#fdfbf5"')}${card}</g>`);
}

const SOFTWARE = "imgbatch procedural (a drawing computed locally, not the output of an image model)";
/** Further pictures of one request take indexes from here on, above the index of any request. */
const IMAGE_STRIDE = 1000;

/** A request, the text to draw for it, and the number of this picture among several (from 0). */
interface Drawing extends ImageRequest {
  text: string;
  image: number;
  /** The version of the drawings. */
  version: string;
}

/** Draws a picture and encodes it with its metadata. Throws the signal's reason if it is aborted. */
export async function drawPicture(
  drawing: Drawing,
  signal: AbortSignal,
  decoding = new Decoding(),
): Promise<Buffer> {
  const { options, pixels: size, model, text, image } = drawing;
  const { mimeType, quality, background, negativePrompt } = options;
  const index = drawing.outputIndex + image * IMAGE_STRIDE;
  const seed = pictureSeed(model, text, options.seed === null ? index : `seed ${options.seed} ${image}`);
  const { svg, caption, left, top } = await pageOf(drawing, seed, signal, decoding);
  signal.throwIfAborted();
  const page = sharp(Buffer.from(svg), { limitInputPixels: false, unlimited: true }).composite([
    { input: caption.data, raw: caption.info, left, top },
  ]);
  const encoded = await encodePicture(page, mimeType, isTransparent(drawing));
  signal.throwIfAborted();
  return addMetadata(encoded, mimeType, size, {
    software: SOFTWARE,
    prompt: drawing.prompt,
    settings: {
      Steps: 1,
      Sampler: "procedural",
      "CFG scale": 1,
      Seed: seed,
      Size: `${size.widthPx}x${size.heightPx}`,
      Model: model,
      Version: `imgbatch procedural/${drawing.version}`,
    },
    details: {
      provider: "procedural",
      version: drawing.version,
      prompt: drawing.prompt,
      model,
      seed,
      index: drawing.outputIndex,
      ...Object.fromEntries(
        Object.entries({ quality, background, negativePrompt, seed: options.seed }).filter(
          ([, value]) => value !== null,
        ),
      ),
      references: drawing.references.length,
    },
  });
}

function isTransparent({ options }: Drawing): boolean {
  return options.background === "transparent";
}

/** Returns the page as an SVG document of the requested size, and the caption that lies over it. */
async function pageOf(drawing: Drawing, seed: number, signal: AbortSignal, decoding: Decoding) {
  const { pixels: size, text, model } = drawing;
  const factor = TIER_FACTORS[tierOf(drawing.options.size)];
  // Lengths are pixels at 1K in every tier: a larger picture is the same drawing with more pixels.
  const [w, h] = [size.widthPx / factor, size.heightPx / factor];
  const least = Math.min(w, h);
  const margin = Math.round(least * 0.032);
  const { quality, negativePrompt } = drawing.options;
  const plan = planScene(text, seed, negativePrompt ?? "");
  const random = new Random(seed);
  const palette = createPalette(plan, random.fork("palette"));
  const options = [quality && `quality ${quality}`, negativePrompt && `without ${negativePrompt}`];
  const label = [
    "procedural",
    "local drawing",
    `no. ${drawing.outputIndex + 1}`,
    model,
    ...options.filter(Boolean),
  ];
  // On a narrow strip the letters would be too small, and there is space below. On a wide one, too.
  const letter = least * (Math.max(h / w, w / h) > 1.9 ? 1.5 : 1);
  const caption = await renderCaption(
    text,
    label.join(" · "),
    {
      width: (w - margin * 2) * factor,
      height: Math.min(h * 0.24, least * 0.34) * factor,
      largest: letter * 0.046 * factor,
      smallest: letter * 0.021 * factor,
    },
    [palette.ink, mix(palette.ink, palette.paper, 0.42)],
  );
  const top = h - margin * 0.85 - caption.info.height / factor;
  const box = { x: margin, y: margin, w: w - margin * 2, h: top - margin * 1.7 };
  const shapes = await drawScene(drawing, plan, palette, random.fork("scene"), box, { signal, decoding });
  const place = `x="${round(box.x)}" y="${round(box.y)}" width="${round(box.w)}" height="${round(box.h)}"`;
  const paper = `<rect width="${w}" height="${h}" fill="${palette.paper}"/>`;
  const frame = `<rect ${place} fill="none" stroke="${palette.ink}" stroke-opacity="0.25"/>`;
  // Whatever lies behind a transparent picture, its words can be read.
  const pad = margin * 0.4;
  const words = { w: caption.info.width / factor + pad * 2, h: caption.info.height / factor + pad * 2 };
  const plate = `<rect x="${round(margin - pad)}" y="${round(top - pad)}" width="${round(words.w)}" height="${round(words.h)}" rx="${round(pad)}" fill="${palette.paper}"/>`;
  const page = isTransparent(drawing)
    ? `<svg ${place}>${shapes}</svg>${plate}`
    : `${paper}<svg ${place}>${shapes}</svg>${frame}`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size.widthPx}" height="${size.heightPx}" viewBox="0 0 ${round(w)} ${round(h)}">${page}</svg>`;
  return { svg, caption, left: Math.round(margin * factor), top: Math.round(top * factor) };
}

async function drawScene(
  drawing: Drawing,
  plan: Plan,
  palette: Palette,
  random: Random,
  { w, h }: { w: number; h: number },
  options: { signal: AbortSignal; decoding: Decoding },
): Promise<string> {
  const [place] = plan.places;
  const unit = Math.min(w, h, Math.sqrt(w * h) * 0.9);
  const horizon = h * groundOf(plan.places).horizon;
  const shapes: string[] = [];
  const scene: Scene = { plan, palette, random, w, h, unit, horizon, ink: inkOf(plan, palette), shapes };
  // A transparent picture has the subjects alone.
  const hasPlace = place !== "pattern" && !isTransparent(drawing);
  if (hasPlace) drawLayers(scene, "back");
  else if (place === "pattern") drawPattern(scene);
  await drawReferences(scene, drawing, TIER_FACTORS[tierOf(drawing.options.size)], options);
  // With a reference, the subjects are small and stand in the lower right corner.
  const hasCards = drawing.references.length > 0;
  const corner = `translate(${round(w * 0.52)} ${round(h * 0.52)})scale(0.48)`;
  shapes.push(`<g transform="${hasCards ? corner : "scale(1)"}">`);
  drawSubjects(scene);
  shapes.push("</g>");
  if (hasPlace) drawLayers(scene, "front");
  options.signal.throwIfAborted();
  return await repaint(shapes.join(""), plan.style, scene);
}

type Grade = (color: Hex) => Hex;

const TINTS: Record<string, Grade> = {
  mono: (color) => tone(color, lightness(color), 0),
  sepia: (color) => mix("#2e1c10", "#f6e7c8", Math.min(1, Math.max(0, (lightness(color) - 0.15) / 0.83))),
  pastel: (color) => tone(color, 0.5 + lightness(color) * 0.48, 0.62),
  vivid: (color) => tone(color, lightness(color), Math.max(1, Math.min(1.45, 0.24 / (chroma(color) + 0.01)))),
  blueprint: (color) => mix("#123a7a", "#dcecff", lightness(color)),
};

/** Returns the ink for the style and tint of a plan. */
function inkOf({ style, tint }: Plan, { roles }: Palette): Ink {
  const tinted = TINTS[tint] ?? ((color: Hex) => color);
  const plain = (fill: Grade): Ink => ({ fill, line: fill, edge: () => "" });
  const stroke = (color: Hex, width: number) =>
    ` stroke="${color}" stroke-width="${width.toFixed(3)}" stroke-linejoin="round"`;
  switch (style) {
    case "retro":
      return plain((color) => tinted(tone(mix(color, "#e8b77a", 0.2), lightness(color) * 0.94, 0.85)));
    case "minimal":
      return plain((color) => tinted(tone(color, 0.12 + lightness(color) * 0.9, 0.75)));
    case "watercolor": {
      const wet = plain((color) => tinted(mix(color, "#fdf9f0", 0.16)));
      const edge = (color: Hex, scale: number) => stroke(mix(wet.fill(color), "#2a2c4a", 0.28), 2.4 / scale);
      return {
        ...wet,
        edge: (color, scale) => `${edge(color, scale)} fill-opacity="0.84" stroke-opacity="0.34"`,
      };
    }
    case "line": {
      const [paper, ink] = tint === "blueprint" ? ["#1d4f9c", "#e9f2ff"] : ["#fbf8f0", "#262837"];
      const line: Grade = (color) => mix(ink, tinted(color), 0.35);
      return {
        fill: (color) => mix(paper, tinted(color), 0.18),
        line,
        edge: (_, scale) => stroke(ink, 2.2 / scale),
      };
    }
    case "neon": {
      const paper = mix("#0a0820", roles.sky ?? "", 0.12);
      // A lit tube is bright, and strong unless it is a grey.
      const line: Grade = (color) =>
        tone(
          color,
          Math.min(0.85, Math.max(0.72, lightness(color))),
          Math.min(3, 0.25 / (chroma(color) + 0.04)),
        );
      const edge: Ink["edge"] = (color, scale) => stroke(line(color), 2.8 / scale);
      return { fill: (color) => mix(paper, line(color), 0.16), line, edge };
    }
    default:
      return plain(tinted);
  }
}

/** Styles that paint a small rendering of the scene again: the pixels of one unit. */
const GRAINS: Record<string, number> = { pixel: 104, mosaic: 48, oil: 420 };

/** Paints a scene again, in a style that asks for it. Others are returned unchanged. */
async function repaint(
  shapes: string,
  style: string,
  { w, h, unit }: { w: number; h: number; unit: number },
): Promise<string> {
  const grain = GRAINS[style];
  if (grain === undefined) return shapes;
  const [width, height] = [Math.ceil((w / unit) * grain), Math.ceil((h / unit) * grain)];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${w} ${h}" preserveAspectRatio="none">${shapes}</svg>`;
  const small = sharp(Buffer.from(svg));
  const brushed = style === "oil" ? small.median(9).modulate({ saturation: 1.15 }) : small;
  const png = await brushed.png({ palette: style !== "oil", colours: 56, dither: 0 }).toBuffer();
  const rendering = style === "oil" ? "auto" : "pixelated";
  return `<image width="${w}" height="${h}" preserveAspectRatio="none" style="image-rendering:${rendering}" href="data:image/png;base64,${png.toString("base64")}"/>`;
}

/** The room for a caption, in pixels of the picture, and the sizes of its letters. */
interface Room {
  width: number;
  height: number;
  largest: number;
  smallest: number;
}

const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
/** The mean width of a letter in ems, and the height of a line. */
const LETTER = 0.63;
const LINE = 1.17;
/** Characters that are about as wide as they are high. */
const WIDE = /[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7af\uf900-\ufaff\uff00-\uff60]|\p{Extended_Pictographic}/u;

/**
 * Draws a text in the largest letters that fit, and a smaller label below it. A text that is too long for the smallest
 * letters is cut with an ellipsis.
 */
export async function renderCaption(
  text: string,
  label: string,
  room: Room,
  [color, faded]: readonly [Hex, Hex],
): ReturnType<typeof renderText> {
  const words = text.replaceAll(/\s+/gu, " ").trim() || "untitled";
  const small = room.largest * 0.33;
  const capacity = (size: number) =>
    (room.width / size / LETTER) * Math.floor((room.height - small * 2.6) / size / LINE);
  const letters: string[] = [];
  let length = 0;
  // No more than the smallest letters have room for.
  for (const { segment } of segmenter.segment(words.slice(0, 5000))) {
    length += WIDE.test(segment) ? 1.7 : 1;
    if (length > capacity(room.smallest) * 0.9) break;
    letters.push(segment);
  }
  const most = Math.floor(room.width / small / LETTER);
  const below = label.length > most ? `${label.slice(0, most - 1)}…` : label;
  let shown = letters.join("");
  if (shown.length < words.length) shown = `${shown.trimEnd()}…`;
  for (let size = room.largest; ; size *= 0.92) {
    const isLast = size <= room.smallest;
    if (!isLast && length > capacity(size)) continue;
    const markup = [
      `<span foreground="${color}">${escapeMarkup(shown)}</span>`,
      `<span size="${Math.round(small * 700)}"> </span>`,
      `<span foreground="${faded}" size="${Math.round(small * 1024)}">${escapeMarkup(below)}</span>`,
    ];
    const image = await renderText(markup.join("\n"), { size, width: room.width });
    if (image.info.height <= room.height || shown.length <= 1) return image;
    // The estimate was too low.
    if (isLast) shown = `${shown.slice(0, Math.floor(shown.length * 0.8 - 1)).trimEnd()}…`;
  }
}

/** Encodes for speed first: these files are made many a second, and their bytes never depend on the machine's load. */
function encodePicture(picture: Sharp, mimeType: ImageMimeType, hasAlpha = false): Promise<Buffer> {
  const page = hasAlpha ? picture : picture.removeAlpha();
  switch (mimeType) {
    case "image/png":
      return page.png({ compressionLevel: 6, adaptiveFiltering: false }).toBuffer();
    case "image/jpeg":
      return picture.flatten({ background: "#ffffff" }).jpeg({ quality: 88 }).toBuffer();
    case "image/webp":
      return page.webp({ quality: 86, effort: 1 }).toBuffer();
  }
}
