import type { SizePx } from "../../../contract/images/image-sizes.ts";
import type { Palette } from "../scene/palette.ts";
import { short } from "../svg/canvas.ts";
import { mix } from "../svg/color.ts";
import { captionSvg, lineSvg } from "./caption.ts";
import { type FittedText, fitText, printable, widthOf } from "./text-lines.ts";

/** A rectangle in the units of the picture at 1K. */
export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** Where things are on the print: the picture, and the caption in its margin. */
export interface PrintLayout {
  page: { w: number; h: number };
  scene: Box;
  caption: FittedText;
  captionAt: { x: number; y: number };
  label: { text: string; x: number; y: number; size: number };
}

/** From this ratio of width to height on, the caption stands beside the picture instead of under it. */
const WIDE_RATIO = 2.6;

/** `page` is the size at 1K, whatever the tier: larger pictures are the same drawing with more pixels. */
export function layOut(page: { w: number; h: number }, prompt: string, label: string): PrintLayout {
  const { w, h } = page;
  const short = Math.min(w, h);
  const margin = Math.round(short * 0.032);
  const text = printable(prompt) || "untitled";
  const labelSize = Math.max(11, short * 0.0155);
  if (w / h > WIDE_RATIO) {
    const column = Math.min(w * 0.27, h * 1.75);
    const box = { width: column - margin * 2, height: h - margin * 3 - labelSize * 2 };
    const caption = fitText(text, box, { largest: h * 0.13, smallest: h * 0.052 });
    return {
      page,
      scene: { x: column, y: margin, w: w - column - margin, h: h - margin * 2 },
      caption,
      captionAt: { x: margin * 1.4, y: margin * 1.2 },
      label: {
        text: cut(label, (column - margin * 2) / labelSize),
        x: margin * 1.4,
        y: h - margin * 1.3,
        size: labelSize,
      },
    };
  }
  const inner = w - margin * 2;
  // A narrow strip has room below, and its letters would be too small.
  const narrow = h / w > 1.9 ? 1.5 : 1;
  const caption = fitText(
    text,
    { width: inner, height: Math.min(h * 0.2, short * 0.3) },
    { largest: short * 0.046 * narrow, smallest: short * 0.021 * narrow },
  );
  const captionHeight =
    caption.size * 0.8 + (caption.lines.length - 1) * caption.leading + caption.size * 0.25;
  const band = Math.round(captionHeight + labelSize * 1.9 + margin * 1.9);
  const sceneH = h - margin - band;
  return {
    page,
    scene: { x: margin, y: margin, w: inner, h: sceneH },
    caption,
    captionAt: { x: margin, y: margin + sceneH + margin * 0.75 },
    label: { text: cut(label, inner / labelSize), x: margin, y: h - margin * 0.85, size: labelSize },
  };
}

/** The page around the picture: paper and caption. */
export function printSvg(layout: PrintLayout, palette: Palette): { under: string; over: string } {
  const { page, scene, label } = layout;
  const faded = mix(palette.ink, palette.paper, 0.42);
  const edge = `<rect x="${short(scene.x)}" y="${short(scene.y)}" width="${short(scene.w)}" height="${short(scene.h)}" fill="none" stroke="${palette.ink}" stroke-opacity="0.25" stroke-width="1"/>`;
  return {
    under: `<rect width="${page.w}" height="${page.h}" fill="${palette.paper}"/>`,
    over:
      edge +
      captionSvg(layout.caption, layout.captionAt.x, layout.captionAt.y, palette.ink) +
      lineSvg(label.text, label.x, label.y, label.size, faded),
  };
}

function cut(text: string, ems: number): string {
  let width = 0;
  const shown = [...printable(text)];
  const at = shown.findIndex((character) => {
    width += widthOf(character);
    return width > ems;
  });
  return at < 0 ? shown.join("") : `${shown.slice(0, Math.max(0, at - 1)).join("")}…`;
}

/** The page of a picture of this size, as it is at 1K. */
export function pageOf(size: SizePx, factor: number): { w: number; h: number } {
  return { w: size.widthPx / factor, h: size.heightPx / factor };
}
