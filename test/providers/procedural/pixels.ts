import sharp from "sharp";

export interface Region {
  left: number;
  top: number;
  width: number;
  height: number;
}

/** Red, green and blue of a region, scaled to `side` by `side`. */
export async function pixels(image: Buffer, side: number, region?: Region): Promise<number[][]> {
  const cut = region === undefined ? sharp(image) : sharp(image).extract(region);
  const data = await cut.removeAlpha().resize(side, side, { fit: "fill" }).raw().toBuffer();
  return Array.from({ length: side * side }, (_, i) => [...data.subarray(i * 3, i * 3 + 3)]);
}

/** The mean difference of two pictures, 0 to 255. */
export async function difference(first: Buffer, second: Buffer): Promise<number> {
  return meanDifference(await pixels(first, 64), await pixels(second, 64));
}

/** The mean difference of two lists of pixels, 0 to 255. */
export function meanDifference(first: readonly number[][], second: readonly number[][]): number {
  const [a, b] = [first.flat(), second.flat()];
  return a.reduce((sum, value, i) => sum + Math.abs(value - (b[i] ?? 0)), 0) / a.length;
}

/** How alike the light and dark of two lists of pixels are: 1 the same, 0 unrelated. */
export function correlation(first: readonly number[][], second: readonly number[][]): number {
  const grey = (list: readonly number[][]) =>
    list.map(([r = 0, g = 0, b = 0]) => 0.3 * r + 0.6 * g + 0.1 * b);
  const [a, b] = [grey(first), grey(second)];
  const mean = (list: number[]) => list.reduce((sum, value) => sum + value, 0) / list.length;
  const [meanA, meanB] = [mean(a), mean(b)];
  const product = (x: number[], mx: number, y: number[], my: number) =>
    x.reduce((sum, value, i) => sum + (value - mx) * ((y[i] ?? 0) - my), 0);
  return product(a, meanA, b, meanB) / Math.sqrt(product(a, meanA, a, meanA) * product(b, meanB, b, meanB));
}

/** The share of a picture's pixels for which the test holds. */
export async function share(
  image: Buffer,
  test: (r: number, g: number, b: number) => boolean,
): Promise<number> {
  const all = await pixels(image, 96);
  return all.filter(([r = 0, g = 0, b = 0]) => test(r, g, b)).length / all.length;
}
