import type { SubjectPlan } from "../prompt/scene-plan.ts";
import type { Place } from "../prompt/vocabulary.ts";
import type { Random } from "../random.ts";
import { darken, type Hex, lighten, mix } from "../svg/color.ts";
import type { Coat, Motif } from "./motifs/motif.ts";
import { motifNamed } from "./motifs/registry.ts";
import type { Scene } from "./scenery/scene.ts";

interface Placed {
  motif: Motif;
  coat: Coat;
  x: number;
  y: number;
  /** The height of the motif, that is, of 100 of its units. */
  height: number;
  flip: boolean;
}

/** Draws the subjects, the far ones first. */
export function drawSubjects(scene: Scene): void {
  const placed = arrange(scene);
  for (const { motif, coat, x, y, height, flip } of placed.sort((a, b) => a.y - b.y)) {
    if (motif.realm === "ground") {
      scene.canvas.ellipse(
        x + height * 0.05,
        y + height * 0.005,
        height * 0.4 * Math.min(1.6, motif.wide ?? 1),
        height * 0.045,
        "#10122a",
        0.26,
      );
    }
    scene.canvas.place({ x, y, scale: height / 100, flip }, () => motif.draw(scene.canvas, coat));
  }
}

function arrange(scene: Scene): Placed[] {
  const { plan, w, unit } = scene;
  const random = scene.random.fork("subjects");
  const things = plan.subjects
    .flatMap((subject) => Array.from({ length: subject.count }, () => subject))
    .slice(0, 9);
  if (plan.riding && things.length === 2) return arrangeRider(scene, things, random);
  const units = things.map((subject) => shownAs(scene, subject, things.length));
  // The widths of all things side by side. The unit is the height of a thing of size 1.
  const total = units.reduce(
    (sum, motif) => sum + (motif.size ?? 1) * Math.max(0.55, motif.wide ?? 1) * 1.08,
    0,
  );
  const tallest = maxHeight(scene);
  const wanted = Math.min(tallest, (w * 0.88) / Math.max(1, total), unit * 0.72);
  const rows = total > 3.4 && things.length > 3 ? 2 : 1;
  const base = rows === 2 ? Math.min(tallest * 0.62, wanted * 1.6) : wanted;
  const span = Math.min(w * 0.92, total * base * (rows === 2 ? 0.62 : 1) * 1.08);
  let at = (w - span) / 2;
  const scale = span / (total || 1);
  return things.map((subject, i) => {
    const motif = units[i] ?? motifNamed(subject.motif);
    const size = motif.size ?? 1;
    const share = size * Math.max(0.55, motif.wide ?? 1) * 1.08 * scale;
    const x = at + share / 2;
    at += share;
    const many = subject.count > 1;
    const depth = many ? random.between(0, 1) : 1;
    const height = clampHeight(scene, motif, base * size * (many ? 0.86 + depth * 0.22 : 1));
    return {
      motif,
      coat: coatOf(scene, subject, random),
      x,
      y:
        levelOf(scene, motif, height, depth, rows === 2 && i % 2 === 0, random) +
        (subject.aloft && motifNamed(subject.motif).realm === "ground" ? height * 0.45 : 0),
      height,
      flip: things.length > 1 ? x > w / 2 : random.chance(0.3),
    };
  });
}

/** Returns the motif as it is shown here: small things grow, most of all one that stands alone. */
function shownAs(scene: Scene, subject: SubjectPlan, count: number): Motif {
  const motif = motifNamed(subject.motif);
  const least = count > 1 ? 0.6 : ALONE.has(scene.plan.places[0]) ? 0.92 : 0.78;
  const realm = subject.aloft && motif.realm === "ground" ? "air" : motif.realm;
  return {
    ...motif,
    realm,
    size: Math.min(ALONE.has(scene.plan.places[0]) ? 1.25 : 2, Math.max(least, motif.size ?? 1)),
  };
}

/** Places that show no scale, such as a studio. */
const ALONE: ReadonlySet<Place> = new Set<Place>(["stage", "pattern", "room", "underwater"]);

function arrangeRider(scene: Scene, things: readonly SubjectPlan[], random: Random): Placed[] {
  const [rider, mount] = things;
  if (rider === undefined || mount === undefined) return [];
  const below = motifNamed(mount.motif);
  const above = motifNamed(rider.motif);
  const height = Math.min(maxHeight(scene) * 0.92, (scene.w * 0.8) / Math.max(1, below.wide ?? 1));
  const y = levelOf(scene, below, height, 1, false, random);
  const top = below.realm === "ground" ? height * 0.58 : height * 0.2;
  const x = scene.w / 2;
  const riderY = y - top + (above.realm === "ground" ? 0 : -height * 0.3);
  const coat = coatOf(scene, mount, random);
  return [
    // The rider is higher up, so it is drawn first and stays behind the mount's neck.
    {
      motif: { ...above, realm: "air" },
      coat: coatOf(scene, rider, random),
      x: x - height * 0.05,
      y: riderY,
      height: height * 0.58,
      flip: false,
    },
    { motif: below, coat, x, y, height, flip: false },
  ];
}

/** The most height of a thing of size 1 in this place. */
function maxHeight(scene: Scene): number {
  const { h, unit, plan } = scene;
  const alone = plan.places[0] === "stage" || plan.places[0] === "pattern";
  const room = plan.places[0] === "room";
  return Math.min(h * (alone ? 0.68 : room ? 0.54 : 0.48), unit * (alone ? 0.7 : 0.52));
}

function clampHeight(scene: Scene, motif: Motif, height: number): number {
  return Math.min(
    height,
    scene.h * (ALONE.has(scene.plan.places[0]) ? 0.74 : 0.82),
    (scene.w * 0.9) / Math.max(0.5, motif.wide ?? 1),
  );
}

/** The height on the page of a motif's foot, or of the middle of a floating motif. */
function levelOf(
  scene: Scene,
  motif: Motif,
  height: number,
  depth: number,
  back: boolean,
  random: Random,
): number {
  const { h, horizon, plan, unit } = scene;
  const place = plan.places[0];
  const lift = back ? unit * 0.1 : 0;
  if (motif.realm === "air" || (motif.realm === "water" && (place === "sky" || place === "space"))) {
    const middle =
      place === "stage" ? h * 0.48 : place === "space" ? h * 0.5 : Math.max(height * 0.6, horizon * 0.52);
    return middle + random.between(-0.08, 0.08) * unit - lift;
  }
  if (motif.realm === "water") {
    if (place === "underwater") return h * 0.46 + random.between(-0.16, 0.16) * unit;
    if (place === "stage" || place === "room") return h * 0.5;
    return horizon + (h - horizon) * 0.36 + unit * 0.02 - height * 0.2 + depth * unit * 0.03;
  }
  if (place === "stage" || place === "pattern") return h * 0.9 - lift - (1 - depth) * unit * 0.03;
  if (place === "room") return h * 0.9 - lift;
  if (place === "space") return h - unit * 0.075 - lift;
  if (place === "underwater") return h - unit * 0.08 - lift;
  return Math.min(h * 0.955, horizon + (h - horizon) * (0.62 + depth * 0.28)) - lift;
}

function coatOf(scene: Scene, subject: SubjectPlan, random: Random): Coat {
  const { palette } = scene;
  const motif = motifNamed(subject.motif);
  const named = subject.color !== null;
  const indoors = ALONE.has(scene.plan.places[0]) && scene.plan.time !== "night";
  const own = (color: Hex) => palette.lit(color, indoors ? 0.06 : named ? 0.22 : 0.34);
  const main = own(subject.color ?? random.pick(motif.colors));
  return {
    main,
    dark: darken(mix(main, "#2a1c4a", 0.12), 0.075),
    light: lighten(main, 0.085),
    soft: own(mix("#fdf8ef", main, 0.06)),
    ink: own("#2a2430"),
    accent: own(scene.plan.accents[0] ?? random.pick<Hex>(["#e4503f", "#f2b52c", "#2f8fa8", "#d8508f"])),
    own,
  };
}
