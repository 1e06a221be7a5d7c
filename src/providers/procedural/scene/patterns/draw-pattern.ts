import type { PatternKind } from "../../prompt/vocabulary.ts";
import type { Scene } from "../scenery/scene.ts";
import { drawBlobs, drawRings, drawWaves } from "./curves.ts";
import { drawFacets, drawGrid, drawHalftone, drawTiles, drawTruchet, drawWeave } from "./geometry.ts";
import { colorsOf, type DrawPattern } from "./pattern.ts";

const PATTERNS: Record<PatternKind, DrawPattern> = {
  tiles: drawTiles,
  waves: drawWaves,
  truchet: drawTruchet,
  rings: drawRings,
  facets: drawFacets,
  halftone: drawHalftone,
  blobs: drawBlobs,
  grid: drawGrid,
  weave: drawWeave,
};

/** Draws the pattern of the plan, in the colours of the prompt if it names any. */
export function drawPattern(scene: Scene): void {
  const random = scene.random.fork("pattern");
  PATTERNS[scene.plan.pattern]({ ...scene, random }, colorsOf(scene, random));
}
