import { createRandom, hashSeed, type Random } from "../random.ts";
import { type MotifName, motifNamed } from "../scene/motifs/registry.ts";
import { type FoundWords, readWords } from "./read-words.ts";
import type { ScenePlan, SubjectPlan } from "./scene-plan.ts";
import { tokenize } from "./tokenize.ts";
import {
  moodWords,
  PATTERN_KINDS,
  type PatternKind,
  type Place,
  patternWords,
  type Season,
  seasonWords,
  styleWords,
  type Time,
  timeWords,
  tintWords,
  type Weather,
  weatherWords,
} from "./vocabulary.ts";

/** Returns the seed of a picture. Another model, prompt or index gives another seed. */
export function pictureSeed(model: string, prompt: string, outputIndex: number): number {
  return hashSeed("picture", model, prompt, outputIndex);
}

/** Reads a prompt into a plan. Every text gives a plan, and the same text and seed give the same plan. */
export function planScene(prompt: string, seed: number): ScenePlan {
  const random = createRandom(seed).fork("plan");
  const found = readWords(tokenize(prompt));
  const named = found.subjects.slice(0, 3);
  const weather = found.first(weatherWords) ?? "clear";
  const places = choosePlaces(found, named, random);
  const subjects = named.length === 0 && places[0] === "room" ? stillLife(random) : named;
  const tropical = places[0] === "sea" ? "summer" : null;
  const season =
    found.first(seasonWords) ?? tropical ?? random.pick<Season>(["spring", "summer", "summer", "autumn"]);
  return {
    seed,
    places,
    time:
      found.first(timeWords) ??
      (found.extras.has("rainbow")
        ? "day"
        : places[0] === "space"
          ? "night"
          : random.pick<Time>(["day", "day", "day", "dawn", "sunset"])),
    timeIsNamed: found.first(timeWords) !== null,
    season: weather === "snow" ? "winter" : season,
    weather: weather as Weather,
    mood: found.first(moodWords) ?? "plain",
    style: found.first(styleWords) ?? "flat",
    tint: found.first(tintWords) ?? "none",
    pattern: found.first(patternWords) ?? random.pick<PatternKind>(PATTERN_KINDS),
    extras: found.extras,
    subjects,
    riding: found.riding && subjects.length > 1,
    accents: found.accents.slice(0, 4),
    skyColor: found.skyColor,
    placeColor: found.placeColor,
    waterColor: found.waterColor,
    leafColor: found.leafColor,
  };
}

function choosePlaces(
  found: FoundWords,
  subjects: readonly SubjectPlan[],
  random: Random,
): readonly [Place, ...Place[]] {
  const [first, ...others] = found.places;
  const home = subjects.map(({ motif }) => motifNamed(motif).home).find((place) => place !== undefined);
  // Mountains and houses stand behind a ground that one can walk on.
  if (first === "mountains" || first === "city") {
    const ground = others.find(
      (place) => place === "sea" || place === "meadow" || place === "forest" || place === "desert",
    );
    if (ground !== undefined) return [ground, first];
  }
  if (first === "sky" && others[0] !== undefined) return [others[0], ...others.slice(1)];
  if (first !== undefined && !(first === "sky" && home !== undefined)) return [first, ...others];
  if (home !== undefined) return [home];
  if (subjects.length > 0) {
    const outdoors = subjects.every(({ motif }) => motifNamed(motif).outdoors === true);
    const weatherly = found.first(weatherWords) ?? found.first(seasonWords) ?? found.first(timeWords);
    if (outdoors && (weatherly !== null || random.chance(0.55))) return ["meadow"];
    return [weatherly !== null && outdoors ? "meadow" : "stage"];
  }
  if (found.pattern) return ["pattern"];
  if (
    found.extras.size > 0 ||
    [weatherWords, timeWords, seasonWords].some((table) => found.first<string>(table) !== null)
  ) {
    return random.pick<readonly [Place, ...Place[]]>([
      ["mountains"],
      ["sea"],
      ["meadow"],
      ["sea", "mountains"],
      ["forest", "mountains"],
    ]);
  }
  return ["pattern"];
}

/** Returns things for a room without subjects, which would be a bare wall. */
function stillLife(random: Random): SubjectPlan[] {
  const things: MotifName[] = [
    random.pick<MotifName>(["plant", "vase", "lamp"]),
    random.pick<MotifName>(["cup", "teapot", "book", "apple"]),
  ];
  return things.map((motif) => ({ motif, count: 1, color: null, aloft: false }));
}
