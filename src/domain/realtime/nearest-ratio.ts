import {
  type AspectRatio,
  COMMON_RATIOS,
  EXTENDED_RATIOS,
  imageSizePx,
  type RatioSet,
  type SizePx,
} from "../../contract/image-formats.ts";

/**
 * The ratio whose pictures are nearest to the shape of an image: twice as wide counts as far as twice as high.
 */
export function nearestRatio(image: SizePx, set: RatioSet): AspectRatio {
  const ratios: readonly AspectRatio[] = set === "extended" ? EXTENDED_RATIOS : COMMON_RATIOS;
  const shape = shapeOf(image);
  const distance = (ratio: AspectRatio) => Math.abs(shape - shapeOf(imageSizePx("1K", ratio)));
  return ratios.reduce((best, ratio) => (distance(ratio) < distance(best) ? ratio : best));
}

const shapeOf = ({ widthPx, heightPx }: SizePx) => Math.log(widthPx / heightPx);
