import type { ScenePlan } from "../../prompt/scene-plan.ts";
import type { Random } from "../../random.ts";
import type { Canvas } from "../../svg/canvas.ts";
import type { Palette } from "../palette.ts";

/** What a part of a scene needs to draw itself. */
export interface Scene {
  canvas: Canvas;
  random: Random;
  /** The size of the scene, in the units of the canvas. */
  w: number;
  h: number;
  /** The shorter side: sizes of things are shares of it, so that they look right in any ratio. */
  unit: number;
  /** The height of the horizon. */
  horizon: number;
  palette: Palette;
  plan: ScenePlan;
}
