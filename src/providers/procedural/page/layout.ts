import type { SizePx } from "../../../contract/images/image-sizes.ts";
import type { Palette } from "../scene/palette.ts";
import { short } from "../svg/canvas.ts";
import { mix } from "../svg/color.ts";
import { captionSvg, lineSvg } from "./caption.ts";
import { legibleText } from "./system-fonts.ts";
import { drawableText, type FittedText, fitText, widthOf } from "./text-lines.ts";

/** A rectangle, in pixels of the picture at 1K. */
export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** The parts of the page: the scene, and the caption and label in its margin. */
export interface PageLayout {
  page: { w: number; h: number };
  scene: Box;
  caption: FittedText;
  captionAt: { x: number; y: number };
  label: { text: string; x: number; y: number; size: number };
}

/** Above this ratio of width to height, the caption stands beside the scene instead of under it. */
const WIDE_RATIO = 2.6;

/** Lays out a page. `page` is its size at 1K in every tier: larger pictures are the same drawing with more pixels. */
export function layOutPage(page: { w: number; h: number }, prompt: string, label: string): PageLayout {
  const { w, h } = page;
  const short = Math.min(w, h);
  const margin = Math.round(short * 0.032);
  const text = legibleText(drawableText(prompt)) || "untitled";
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
  // On a narrow strip the letters would be too small, and there is space below.
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

/** Returns the page as SVG: the paper under the scene, and the edge, caption and label over it. */
export function pageSvg(layout: PageLayout, palette: Palette): { under: string; over: string } {
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
  const shown = [...legibleText(drawableText(text))];
  const at = shown.findIndex((character) => {
    width += widthOf(character);
    return width > ems;
  });
  return at < 0 ? shown.join("") : `${shown.slice(0, Math.max(0, at - 1)).join("")}…`;
}

/** Returns the size of the page at 1K. `factor` is the tier's enlargement. */
export function pageSize(size: SizePx, factor: number): { w: number; h: number } {
  return { w: size.widthPx / factor, h: size.heightPx / factor };
}
