import { FIXED_LIMITS } from "../../../contract/limits.ts";
import type { ReferenceImage } from "../../../domain/ports/image-provider.ts";
import { DECODE_SECONDS, type Decoding } from "../../../imaging/decoding.ts";
import { sharp } from "../../../imaging/sharp-config.ts";
import { captionSvg } from "../page/caption.ts";
import { legibleText } from "../page/system-fonts.ts";
import { drawableText, fitText } from "../page/text-lines.ts";
import type { ScenePlan } from "../prompt/scene-plan.ts";
import { hashSeed } from "../random.ts";
import { short } from "../svg/canvas.ts";
import { darken, fromHue, mix } from "../svg/color.ts";
import { disc, rectangle } from "../svg/shapes.ts";
import type { Scene } from "./scenery/scene.ts";

/** A reference image, ready for the document. */
export interface Card {
  /** Width over height. */
  ratio: number;
  /** Returns the card's image as SVG, in a box of this size with its corner at 0, 0. */
  svg(width: number, height: number): string;
}

/** The longest side of a single reference in a picture at 1K, in pixels. */
const CARD_PX = 820;
/** The same for one of several references. */
const SMALL_CARD_PX = 480;

/** Decodes the references, turns them upright and shrinks them. In a grey or sepia picture they become grey. */
export async function loadCards(
  references: readonly ReferenceImage[],
  plan: ScenePlan,
  tier: number,
  { signal, decoding }: { signal: AbortSignal; decoding: Decoding },
): Promise<Card[]> {
  const longest = (references.length === 1 ? CARD_PX : SMALL_CARD_PX) * tier;
  const cards: Card[] = [];
  for (const reference of references) {
    signal.throwIfAborted();
    const { data, info } = await reference.lend((bytes) =>
      decoding.decode(bytes, { maxPixels: FIXED_LIMITS.referencePixels }, (decodable) =>
        shrink(decodable, longest, plan),
      ),
    );
    const href = `data:image/jpeg;base64,${data.toString("base64")}`;
    cards.push({
      ratio: info.width / info.height,
      svg: (width, height) =>
        `<image width="${short(width)}" height="${short(height)}" preserveAspectRatio="none" href="${href}"/>`,
    });
  }
  return cards;
}

function shrink(bytes: Buffer, longest: number, { tint }: ScenePlan) {
  let image = sharp(bytes)
    .autoOrient()
    .resize(longest, longest, { fit: "inside", withoutEnlargement: true })
    .flatten({ background: "#ffffff" });
  if (tint === "mono" || tint === "sepia") image = image.grayscale();
  return image
    .toColourspace("srgb")
    .jpeg({ quality: 90 })
    .timeout({ seconds: DECODE_SECONDS })
    .toBuffer({ resolveWithObject: true });
}

/** Returns a blank card with a name, for a reference in a storage that this provider cannot read. */
export function nameCard(uri: string): Card {
  const name = legibleText(drawableText(uri.split("/").at(-1) || uri)) || "reference";
  const color = fromHue(0.78, 0.07, hashSeed("stored", uri) % 360);
  return {
    ratio: 4 / 3,
    svg: (width, height) => {
      const sizes = { largest: height * 0.09, smallest: height * 0.05 };
      const text = fitText(name, { width: width * 0.88, height: height * 0.24 }, sizes);
      const hill = `M0 ${short(height * 0.7)}L${short(width * 0.3)} ${short(height * 0.36)}L${short(width * 0.52)} ${short(height * 0.6)}L${short(width * 0.7)} ${short(height * 0.44)}L${short(width)} ${short(height * 0.7)}Z`;
      return (
        `<path d="${rectangle(0, 0, width, height)}" fill="${color}"/>` +
        `<path d="${hill}${disc(width * 0.74, height * 0.22, height * 0.08)}" fill="#ffffff" fill-opacity="0.6"/>` +
        captionSvg(text, width * 0.06, height * 0.75, darken(color, 0.5))
      );
    },
  };
}

/** Draws one reference as the framed middle of the picture, or several as cards in rows. */
export function drawCards(scene: Scene, cards: readonly Card[]): void {
  const [first] = cards;
  if (first === undefined) return;
  const { w, h } = scene;
  const random = scene.random.fork("cards");
  if (cards.length === 1) {
    const width = Math.min(w * 0.8, h * 0.8 * first.ratio);
    drawCard(scene, first, w / 2, h * 0.48, width, 0, true);
    return;
  }
  const rows = rowsFor(cards.length, w / h);
  const columns = Math.ceil(cards.length / rows);
  const cell = { w: (w * 0.94) / columns, h: (h * 0.92) / rows };
  cards.forEach((card, i) => {
    const row = Math.floor(i / columns);
    const inRow = Math.min(columns, cards.length - row * columns);
    const x = w / 2 + ((i % columns) - (inRow - 1) / 2) * cell.w;
    const y = h * 0.04 + (row + 0.5) * cell.h;
    drawCard(
      scene,
      card,
      x,
      y,
      Math.min(cell.w * 0.84, cell.h * 0.8 * card.ratio),
      random.between(-3.5, 3.5),
      false,
    );
  });
}

function rowsFor(count: number, ratio: number): number {
  let best = 1;
  let largest = 0;
  for (let rows = 1; rows <= count; rows++) {
    const side = Math.min(ratio / Math.ceil(count / rows), 1 / rows);
    if (side > largest * 1.001) [best, largest] = [rows, side];
  }
  return best;
}

function drawCard(
  scene: Scene,
  card: Card,
  x: number,
  y: number,
  width: number,
  turn: number,
  tinted: boolean,
): void {
  const { canvas, plan, unit } = scene;
  const height = width / card.ratio;
  const mat = Math.max(5, Math.min(width, height) * 0.035);
  const [left, top] = [-width / 2, -height / 2];
  canvas.place({ x, y, rotate: turn }, () => {
    canvas.raw(
      rect(
        left - mat + unit * 0.008,
        top - mat + unit * 0.014,
        width + mat * 2,
        height + mat * 2,
        "#0c0d1c",
        0.3,
      ),
    );
    canvas.raw(rect(left - mat, top - mat, width + mat * 2, height + mat * 2, "#fdfbf5", 1));
    canvas.raw(`<g transform="translate(${short(left)} ${short(top)})">${card.svg(width, height)}</g>`);
    for (const [color, opacity] of tinted ? veils(plan) : [])
      canvas.raw(rect(left, top, width, height, color, opacity));
  });
}

/** Returns the veils of colour that the prompt lays over the reference. They leave it recognisable. */
function veils(plan: ScenePlan): [string, number][] {
  const light: Record<ScenePlan["time"], [string, number][]> = {
    day: [],
    dawn: [["#ffb38a", 0.14]],
    sunset: [["#ff7a3c", 0.2]],
    night: [["#0b1a4a", 0.34]],
  };
  const named = plan.accents[0] ?? plan.skyColor ?? plan.placeColor;
  const sepia: [string, number][] = plan.tint === "sepia" ? [["#a8743a", 0.26]] : [];
  return [
    ...(plan.timeIsNamed ? light[plan.time] : []),
    ...sepia,
    ...(named ? [[mix(named, "#ffffff", 0.1), 0.28] as [string, number]] : []),
  ];
}

function rect(x: number, y: number, w: number, h: number, fill: string, opacity: number): string {
  return `<rect x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}" rx="2" fill="${fill}" fill-opacity="${opacity}"/>`;
}
