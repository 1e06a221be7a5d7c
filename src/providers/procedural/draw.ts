import { TIER_FACTORS } from "../../contract/image-formats.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { Decoding } from "../../imaging/decoding.ts";
import { encodePicture } from "../../imaging/encode.ts";
import { addMetadata } from "../../imaging/picture-metadata.ts";
import { sharp } from "../../imaging/sharp-config.ts";
import { renderCaption } from "./caption.ts";
import { mix } from "./color.ts";
import { createPalette, type Palette } from "./palette.ts";
import { drawPattern } from "./pattern.ts";
import { type Plan, pictureSeed, planScene } from "./plan.ts";
import { Random } from "./random.ts";
import { drawReferences } from "./references.ts";
import { drawLayers, groundOf, round, type Scene } from "./scene.ts";
import { inkOf, repaint } from "./style.ts";
import { drawSubjects } from "./subjects.ts";

const SOFTWARE = "imgbatch procedural (a drawing computed locally, not the output of an image model)";
/** Further pictures of one request take indexes from here on, above the index of any request. */
const IMAGE_STRIDE = 1000;

/** A request, the text to draw for it, and the number of this picture among several (from 0). */
export interface Drawing extends ImageRequest {
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
  const { size, model, text, mimeType } = drawing;
  const seed = pictureSeed(model, text, drawing.outputIndex + drawing.image * IMAGE_STRIDE);
  const { svg, caption, left, top } = await pageOf(drawing, seed, signal, decoding);
  signal.throwIfAborted();
  const page = sharp(Buffer.from(svg), { limitInputPixels: false, unlimited: true }).composite([
    { input: caption.data, raw: caption.info, left, top },
  ]);
  const encoded = await encodePicture(page, mimeType);
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
      references: drawing.references.length + drawing.storedReferences.length,
    },
  });
}

/** Returns the page as an SVG document of the requested size, and the caption that lies over it. */
async function pageOf(drawing: Drawing, seed: number, signal: AbortSignal, decoding: Decoding) {
  const { size, text, model } = drawing;
  const factor = TIER_FACTORS[drawing.tier];
  // Lengths are pixels at 1K in every tier: a larger picture is the same drawing with more pixels.
  const [w, h] = [size.widthPx / factor, size.heightPx / factor];
  const least = Math.min(w, h);
  const margin = Math.round(least * 0.032);
  const plan = planScene(text, seed);
  const random = new Random(seed);
  const palette = createPalette(plan, random.fork("palette"));
  const stored = drawing.storedReferences.map(({ uri }) => uri.split("/").at(-1)?.slice(0, 60) || uri);
  // On a narrow strip the letters would be too small, and there is space below. On a wide one, too.
  const letter = least * (Math.max(h / w, w / h) > 1.9 ? 1.5 : 1);
  const caption = await renderCaption(
    text,
    ["procedural", "local drawing", `no. ${drawing.outputIndex + 1}`, model, ...stored].join(" · "),
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
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${size.widthPx}" height="${size.heightPx}" viewBox="0 0 ${round(w)} ${round(h)}"><rect width="${w}" height="${h}" fill="${palette.paper}"/><svg ${place}>${shapes}</svg><rect ${place} fill="none" stroke="${palette.ink}" stroke-opacity="0.25"/></svg>`;
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
  if (place === "pattern") drawPattern(scene);
  else drawLayers(scene, "back");
  await drawReferences(scene, drawing, TIER_FACTORS[drawing.tier], options);
  // With a reference, the subjects are small and stand in the lower right corner.
  const hasCards = drawing.references.length + drawing.storedReferences.length > 0;
  const corner = `translate(${round(w * 0.52)} ${round(h * 0.52)})scale(0.48)`;
  shapes.push(`<g transform="${hasCards ? corner : "scale(1)"}">`);
  drawSubjects(scene);
  shapes.push("</g>");
  if (place !== "pattern") drawLayers(scene, "front");
  options.signal.throwIfAborted();
  return await repaint(shapes.join(""), plan.style, scene);
}
