import { createRequire } from "node:module";
import type { OutputInfo } from "sharp";
import { nameFontConfiguration } from "../environment.ts";
import { packageFile } from "../kernel/package-file.ts";
import { sharp } from "./sharp-config.ts";

const FONT = createRequire(import.meta.url).resolve("dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf");
let first: Promise<unknown> | null = null;

/** A text as raw pixels with an alpha channel. They reach from its first letter's edge to its last one's. */
interface TextImage {
  data: Buffer;
  info: OutputInfo;
}

/**
 * Draws text in Pango's markup, in the packaged font, and wraps it at `width` pixels. Fonts of the system draw characters
 * that it lacks. Throws if no character leaves a mark.
 */
export async function renderText(
  markup: string,
  options: { size: number; width: number },
): Promise<TextImage> {
  await first?.catch(() => {});
  // Fontconfig reads its configuration with the first text of the process.
  const done = first === null ? nameFontConfiguration(packageFile("src/imaging/fonts.conf")) : () => {};
  const rendering = sharp({
    text: {
      text: markup,
      font: `DejaVu Sans Bold ${options.size.toFixed(2)}px`,
      fontfile: FONT,
      width: Math.max(1, Math.round(options.width)),
      wrap: "word-char",
      rgba: true,
    },
  })
    .raw()
    .toBuffer({ resolveWithObject: true })
    .finally(done);
  first ??= rendering;
  return await rendering;
}

/** Returns text that the markup shows as it is, without characters that it does not take. */
export function escapeMarkup(text: string): string {
  const shown = text.replaceAll(
    /[\p{Cc}\p{Cs}\p{Co}\p{Cn}\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]/gu,
    "",
  );
  return shown.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
