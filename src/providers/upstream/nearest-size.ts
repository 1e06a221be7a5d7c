import type { SizePx } from "../../contract/image-formats.ts";

/** Returns the size of the list (`WxH`, in pixels, not empty) that is nearest to a wanted one: by ratio, then by area. */
export function nearestSize(sizes: readonly string[], wanted: SizePx): SizePx {
  const distances = sizes.map((text) => {
    const [widthPx = 0, heightPx = 0] = text.split("x").map(Number);
    const size = { widthPx, heightPx };
    return {
      size,
      ratio: Math.abs(Math.log(ratioOf(size) / ratioOf(wanted))),
      area: Math.abs(Math.log(areaOf(size) / areaOf(wanted))),
    };
  });
  const nearest = distances.reduce((best, each) => {
    const isNearer = each.ratio < best.ratio || (each.ratio === best.ratio && each.area < best.area);
    return isNearer ? each : best;
  });
  return nearest.size;
}

const ratioOf = ({ widthPx, heightPx }: SizePx) => widthPx / heightPx;
const areaOf = ({ widthPx, heightPx }: SizePx) => widthPx * heightPx;
