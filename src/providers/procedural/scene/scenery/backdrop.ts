import { lighten } from "../../svg/color.ts";
import { motifNamed } from "../motifs/registry.ts";
import { drawGrass, drawHills, drawRiver } from "./ground.ts";
import { drawSkyline, drawStreet } from "./places/city.ts";
import { drawDesert } from "./places/desert.ts";
import { drawForest } from "./places/forest.ts";
import { drawMeadow } from "./places/meadow.ts";
import { drawFoothills, drawMountains } from "./places/mountains.ts";
import { drawRoom } from "./places/room.ts";
import { drawSea } from "./places/sea.ts";
import { drawMoonGround, drawSpace } from "./places/space.ts";
import { drawStage } from "./places/stage.ts";
import { drawUnderwater } from "./places/underwater.ts";
import type { Scene } from "./scene.ts";
import { drawSky } from "./sky/sky.ts";
import { drawHaze } from "./sky/sky-shows.ts";
import { drawLightning } from "./sky/weather.ts";

/** Draws everything behind the subjects. The first place is the ground; the others stand on the horizon. */
export function drawBackdrop(scene: Scene): void {
  const { plan } = scene;
  switch (plan.places[0]) {
    case "space":
      drawSpace(scene);
      if (plan.subjects.length > 0 && standsOnGround(scene)) drawMoonGround(scene);
      return;
    case "underwater":
      drawUnderwater(scene);
      return;
    case "room":
      drawRoom(scene);
      return;
    case "stage":
    case "pattern":
      drawStage(scene);
      return;
    default:
      drawOutdoors(scene);
      return;
  }
}

function drawOutdoors(scene: Scene): void {
  const { plan, palette } = scene;
  const [first, ...others] = plan.places;
  drawSky(scene);
  if (plan.weather === "storm") drawLightning(scene);
  if (first === "mountains" || others.includes("mountains")) drawMountains(scene);
  if (first === "city" || others.includes("city")) drawSkyline(scene);
  drawHaze(scene, plan.weather === "fog" ? 0.8 : 0.4);
  if (others.includes("forest") && first !== "forest") drawForest(scene);
  else if (others.includes("meadow") || others.includes("desert")) drawHills(scene, 1);
  switch (first) {
    case "mountains":
      drawHills(scene);
      drawFoothills(scene);
      if (plan.season !== "winter")
        drawGrass(scene, plan.season === "spring" ? [lighten(palette.accent, 0.06)] : []);
      break;
    case "city":
      drawStreet(scene);
      break;
    case "sea":
      drawSea(
        scene,
        plan.subjects.every(({ motif }) => !AFLOAT.has(motif)),
      );
      break;
    case "forest":
      drawForest(scene);
      break;
    case "desert":
      drawDesert(scene);
      break;
    case "sky":
      drawHills(scene, 2);
      break;
    default:
      drawMeadow(scene);
  }
  if (plan.extras.has("river") && first !== "sea") drawRiver(scene);
}

/** Motifs that need open water in front of them, without a beach. */
const AFLOAT = new Set(["sailboat", "ship", "whale", "dolphin", "fish", "duck", "swan"]);

function standsOnGround(scene: Scene): boolean {
  return scene.plan.subjects.some(({ motif }) => motifNamed(motif).realm === "ground");
}
