import { drawing } from "./drawing.ts";
import type { Subject } from "./plan.ts";
import { groundOf, put, type Scene, shadow } from "./scene.ts";

/** Draws the subjects, the far ones first. */
export function drawSubjects(scene: Scene): void {
  const { plan, palette } = scene;
  const random = scene.random.fork("coats");
  const placed = plan.isRiding ? riderOf(scene) : arrange(scene);
  for (const { subject, x, y, height, flip } of placed.sort((a, b) => a.y - b.y)) {
    const { motif, color } = subject;
    const isInside = groundOf(plan.places).least > 0.9 && plan.time !== "night";
    const share = isInside ? 0.06 : color !== null ? 0.22 : 0.34;
    const usual = random.pick(["#e4503f", "#f2b52c", "#2f8fa8", "#d8508f"]);
    const main = palette.lit(color ?? random.pick(motif.colors), share);
    const accent = palette.lit(plan.accents[0] ?? usual, share);
    if (motif.realm === "ground" && y > scene.horizon)
      shadow(scene, x + height * 0.05, y, height * 0.4 * Math.min(1.6, motif.wide), 0.26);
    put(scene, drawing(`motifs/${motif.name}`), { x, y, scale: height / 100, flip }, { main, accent }, share);
  }
}

/** Places the subjects side by side. Small things grow, most of all one that stands alone. */
function arrange(scene: Scene) {
  const { plan, w, h, unit } = scene;
  const random = scene.random.fork("subjects");
  const { tall, least } = groundOf(plan.places);
  const things = plan.subjects.flatMap((subject) => Array.from({ length: subject.count }, () => subject));
  const all = things.slice(0, 9);
  const sizeOf = ({ motif }: Subject) =>
    Math.min(least > 0.9 ? 1.25 : 2, Math.max(all.length > 1 ? 0.6 : least, motif.size));
  const widthOf = (subject: Subject) => sizeOf(subject) * Math.max(0.55, subject.motif.wide) * 1.08;
  // The widths of all things. Their unit is the height of a thing of size 1.
  const total = all.reduce((sum, subject) => sum + widthOf(subject), 0);
  const inRows = total > 3.4 && all.length > 3;
  const wanted = Math.min(tall * Math.min(h, unit), (w * 0.88) / Math.max(1, total));
  const base = inRows ? Math.min(tall * 0.62 * unit, wanted * 1.6) : wanted;
  const span = Math.min(w * 0.92, total * base * (inRows ? 0.67 : 1.08));
  let at = (w - span) / 2;
  return all.map((subject, i) => {
    const share = (widthOf(subject) * span) / total;
    at += share;
    const x = at - share / 2;
    const depth = subject.count > 1 ? random.next() : 1;
    const grown = base * sizeOf(subject) * (subject.count > 1 ? 0.86 + depth * 0.22 : 1);
    const height = Math.min(grown, h * 0.78, (w * 0.9) / Math.max(0.5, subject.motif.wide));
    const y = levelOf(scene, subject, height, depth) - (inRows && i % 2 === 0 ? unit * 0.1 : 0);
    return { subject, x, y, height, flip: all.length > 1 ? x > w / 2 : random.chance(0.3) };
  });
}

/** Places the first subject on the second. It is higher up, so it is drawn first and stays behind the mount's neck. */
function riderOf(scene: Scene): ReturnType<typeof arrange> {
  const [rider, mount] = scene.plan.subjects;
  if (rider === undefined || mount === undefined) return [];
  const height = Math.min(scene.unit * 0.48, (scene.w * 0.8) / Math.max(1, mount.motif.wide));
  const y = levelOf(scene, mount, height, 1);
  const saddle = height * (mount.motif.realm === "ground" ? 0.58 : 0.2);
  const on = { subject: mount, x: scene.w / 2, y, height, flip: false };
  return [{ ...on, subject: rider, x: on.x - height * 0.05, y: y - saddle, height: height * 0.58 }, on];
}

/** Returns the height on the page of a motif's foot, or of the middle of a floating motif. */
function levelOf(
  { h, horizon, plan, unit, random }: Scene,
  { motif }: Subject,
  height: number,
  depth: number,
): number {
  const { stand, fly, swim } = groundOf(plan.places);
  const sway = random.fork(`level${depth}`).between(-0.1, 0.1) * unit;
  if (motif.realm === "ground") return horizon + (h - horizon) * Math.min(0.9, stand + depth * 0.25);
  if (motif.realm === "water" && swim === undefined) return horizon + (h - horizon) * 0.4 - height * 0.2;
  return h * ((motif.realm === "water" ? swim : null) ?? fly) + sway;
}
