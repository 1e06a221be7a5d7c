import type { MotifName } from "../scene/motifs/registry.ts";
import type { Hex } from "../svg/color.ts";
import type { Extra, Mood, PatternKind, Place, Season, Style, Time, Tint, Weather } from "./vocabulary.ts";

/** One kind of thing to show. */
export interface SubjectPlan {
  /** The name of a motif. */
  motif: MotifName;
  count: number;
  /** The colour that the prompt gives it; null for its usual one. */
  color: Hex | null;
  /** In the air, whatever it usually does. */
  aloft: boolean;
}

/** What a prompt's words ask for, and the seed that decides everything else. */
export interface ScenePlan {
  seed: number;
  /** Where it is; of several, the one that the ground belongs to comes first. */
  places: readonly [Place, ...Place[]];
  time: Time;
  /** Whether the prompt says so; otherwise the seed chose it. */
  timeIsNamed: boolean;
  season: Season;
  weather: Weather;
  mood: Mood;
  style: Style;
  tint: Tint;
  pattern: PatternKind;
  extras: ReadonlySet<Extra>;
  /** In the order of the prompt, at most three. */
  subjects: readonly SubjectPlan[];
  /** The first subject sits on the second. */
  riding: boolean;
  /** Colours named for no one thing. */
  accents: readonly Hex[];
  skyColor: Hex | null;
  placeColor: Hex | null;
  waterColor: Hex | null;
  leafColor: Hex | null;
}
