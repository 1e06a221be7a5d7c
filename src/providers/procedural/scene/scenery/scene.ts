import type { ScenePlan } from "../../prompt/scene-plan.ts";
import type { Random } from "../../random.ts";
import type { Canvas } from "../../svg/canvas.ts";
import type { Palette } from "../palette.ts";

/** The means to draw a part of a scene: its canvas, random numbers, measures, colours and plan. */
export interface Scene {
  canvas: Canvas;
  random: Random;
  /** The size of the scene, in the units of the canvas. */
  w: number;
  h: number;
  /** The length that the sizes of things are shares of, so that they look right in any ratio. */
  unit: number;
  /** The height of the horizon. */
  horizon: number;
  palette: Palette;
  plan: ScenePlan;
}
