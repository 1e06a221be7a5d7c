import { TIER_FACTORS } from "../../contract/images/image-sizes.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { Decoding } from "../../imaging/decoding.ts";
import { encodePicture } from "../../imaging/encode.ts";
import { addMetadata } from "../../imaging/picture-metadata.ts";
import { sharp } from "../../imaging/sharp-config.ts";
import { DRAWING_VERSION } from "./drawing-version.ts";
import { layOutPage, pageSize, pageSvg } from "./page/layout.ts";
import { learnMissing } from "./page/system-fonts.ts";
import { drawableText } from "./page/text-lines.ts";
import { pictureSeed, planScene } from "./prompt/plan-scene.ts";
import { createRandom } from "./random.ts";
import { drawScene, unitOf } from "./scene/draw-scene.ts";
import { createPalette } from "./scene/palette.ts";
import { loadCards, nameCard } from "./scene/reference-cards.ts";
import { repaint } from "./style/repaint.ts";
import { short } from "./svg/canvas.ts";

const SOFTWARE = "imgbatch procedural (a drawing computed locally, not the output of an image model)";
/** Further pictures of one request take indexes from here on, above the index of any request. */
const IMAGE_STRIDE = 1000;

/** A request, the text to draw for it, and the number of this picture among several (from 0). */
export interface Drawing extends ImageRequest {
  text: string;
  image: number;
}

/** Draws a picture and encodes it with its metadata. Throws the signal's reason if it is aborted. */
export async function drawPicture(
  drawing: Drawing,
  signal: AbortSignal,
  decoding = new Decoding(),
): Promise<Buffer> {
  const { size, model, text, mimeType } = drawing;
  const seed = pictureSeed(model, text, drawing.outputIndex + drawing.image * IMAGE_STRIDE);
  const svg = await documentOf(drawing, seed, signal, decoding);
  signal.throwIfAborted();
  const encoded = await encodePicture(
    sharp(Buffer.from(svg), { limitInputPixels: false, unlimited: true }),
    mimeType,
  );
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
      Version: `imgbatch procedural/${DRAWING_VERSION}`,
    },
    details: {
      provider: "procedural",
      version: DRAWING_VERSION,
      prompt: drawing.prompt,
      model,
      seed,
      index: drawing.outputIndex,
      references: drawing.references.length + drawing.storedReferences.length,
    },
  });
}

/** Returns the whole picture as one SVG document of the requested size. */
export async function documentOf(
  drawing: Drawing,
  seed: number,
  signal: AbortSignal,
  decoding = new Decoding(),
): Promise<string> {
  const { size, text, model } = drawing;
  const factor = TIER_FACTORS[drawing.tier];
  for (const shown of [text, model, ...drawing.storedReferences.map(({ uri }) => uri)])
    await learnMissing(drawableText(shown));
  const plan = planScene(text, seed);
  const random = createRandom(seed);
  const palette = createPalette(plan, random.fork("palette"));
  const cards = [
    ...(await loadCards(drawing.references, plan, factor, { signal, decoding })),
    ...drawing.storedReferences.map(({ uri }) => nameCard(uri)),
  ];
  const page = pageSize(size, factor);
  const layout = layOutPage(
    page,
    text,
    `procedural · local drawing · no. ${drawing.outputIndex + 1} · ${model}`,
  );
  const { x, y, w, h } = layout.scene;
  const drawn = drawScene(plan, palette, w, h, cards);
  signal.throwIfAborted();
  const art = await repaint(drawn, plan.style, { w, h, unit: unitOf(w, h) }, random.fork("repaint"));
  const { under, over } = pageSvg(layout, palette);
  const box = `x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${size.widthPx}" height="${size.heightPx}" viewBox="0 0 ${short(page.w)} ${short(page.h)}"><defs>${art.defs}</defs>${under}<svg ${box}>${art.body}</svg>${over}</svg>`;
}
