import { FIXED_LIMITS } from "../../contract/limits.ts";
import type { ImageRequest } from "../../domain/ports/image-provider.ts";
import { DECODE_SECONDS, type Decoding } from "../../imaging/decoding.ts";
import { sharp } from "../../imaging/sharp-config.ts";
import { round, type Scene } from "./scene.ts";

/** A reference image as an SVG element without its size, and its width over its height. */
interface Card {
  ratio: number;
  element: string;
}

/** The longest side of a single reference in a picture at 1K, and that of one of several, in pixels. */
const CARD_PX = { single: 820, several: 480 };

/** Draws the references of a request as framed cards. */
export async function drawReferences(
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
