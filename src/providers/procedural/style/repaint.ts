import { sharp } from "../../../imaging/sharp-config.ts";
import type { Style } from "../prompt/vocabulary.ts";
import type { Random } from "../random.ts";
import { short } from "../svg/canvas.ts";
import type { Hex } from "../svg/color.ts";
import { type Brushwork, brushStrokes, dabs, stones, triangles } from "./brushwork.ts";

/** A drawn scene as SVG: its definitions for the document's `defs`, and its shapes. */
export interface Art {
  defs: string;
  body: string;
}

const REPAINTS: Partial<Record<Style, { cell: number; paint: Brushwork }>> = {
  oil: { cell: 1 / 90, paint: brushStrokes },
  lowpoly: { cell: 1 / 60, paint: triangles },
  mosaic: { cell: 1 / 46, paint: stones },
  dots: { cell: 1 / 60, paint: dabs },
};

/** The pixels of the shorter side of pixel art. */
const PIXEL_ART_PX = 104;
const PIXEL_ART_COLORS = 56;

/**
 * Paints the scene again in its style, from the colours of a small rendering. For a style that is drawn directly it returns
 * the art unchanged.
 */
export async function repaint(
  art: Art,
  style: Style,
  box: { w: number; h: number; unit: number },
  random: Random,
): Promise<Art> {
  const { w, h, unit } = box;
  if (style === "pixel") {
    const image = rendering(art, w, h, PIXEL_ART_PX / unit);
    const png = await image.png({ palette: true, colours: PIXEL_ART_COLORS, dither: 0 }).toBuffer();
    return {
      defs: "",
      body: `<image width="${short(w)}" height="${short(h)}" preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,${png.toString("base64")}"/>`,
    };
  }
  const brush = REPAINTS[style];
  if (brush === undefined) return art;
  const { data, info } = await rendering(art, w, h, 1 / (brush.cell * unit))
    .removeAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  const at = (x: number, y: number): Hex => {
    const column = Math.min(info.width - 1, Math.max(0, Math.floor((x / w) * info.width)));
    const row = Math.min(info.height - 1, Math.max(0, Math.floor((y / h) * info.height)));
    const offset = (row * info.width + column) * info.channels;
    return `#${data.toString("hex", offset, offset + 3)}`;
  };
  return { defs: art.defs, body: art.body + brush.paint({ w, h, at }, random, unit) };
}

function rendering(art: Art, w: number, h: number, factor: number) {
  const [width, height] = [Math.max(1, Math.round(w * factor)), Math.max(1, Math.round(h * factor))];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${short(w)} ${short(h)}" preserveAspectRatio="none"><defs>${art.defs}</defs>${art.body}</svg>`;
  return sharp(Buffer.from(svg));
}
