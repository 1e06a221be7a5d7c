import type { ScenePlan } from "../prompt/scene-plan.ts";
import { createRandom } from "../random.ts";
import type { Art } from "../style/repaint.ts";
import { inkOf } from "../style/style.ts";
import { drawSurface } from "../style/surface.ts";
import { createCanvas } from "../svg/canvas.ts";
import type { Palette } from "./palette.ts";
import { drawPattern } from "./patterns/draw-pattern.ts";
import { type Card, drawCards } from "./reference-cards.ts";
import { drawBackdrop } from "./scenery/backdrop.ts";
import type { Scene } from "./scenery/scene.ts";
import { drawWeather } from "./scenery/sky/weather.ts";
import { drawSubjects } from "./subjects.ts";

/** Returns the length that the sizes of things are shares of, in a scene of this size. */
export function unitOf(w: number, h: number): number {
  return Math.min(w, h, Math.sqrt(w * h) * 0.9);
}

/** Returns the scene as SVG in a box of this size, with the reference cards if there are any. */
export function drawScene(
  plan: ScenePlan,
  palette: Palette,
  w: number,
  h: number,
  cards: readonly Card[],
): Art {
  const canvas = createCanvas(inkOf(plan, palette));
  const random = createRandom(plan.seed).fork("scene");
  const tall = h > w * 1.6;
  const horizon = h * random.between(0.54, 0.62) + (tall ? h * 0.08 : 0);
  const scene: Scene = { canvas, random, w, h, unit: unitOf(w, h), horizon, palette, plan };
  if (plan.places[0] === "pattern") drawPattern(scene);
  else drawBackdrop(scene);
  drawCards(scene, cards);
  if (cards.length === 0) drawSubjects(scene);
  // With a reference, the subjects are small and stand in the lower right corner.
  else canvas.place({ x: w * 0.52, y: h * 0.52, scale: 0.48 }, () => drawSubjects(scene));
  if (plan.places[0] !== "pattern") drawWeather(scene);
  drawSurface(scene);
  return canvas.svg();
}
