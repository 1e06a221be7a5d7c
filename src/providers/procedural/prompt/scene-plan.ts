import type { MotifName } from "../scene/motifs/registry.ts";
import type { Hex } from "../svg/color.ts";
import type { Extra, Mood, PatternKind, Place, Season, Style, Time, Tint, Weather } from "./vocabulary.ts";

/** One kind of thing to show. */
export interface SubjectPlan {
  motif: MotifName;
  count: number;
  /** The colour that the prompt gives it; null for one of its usual colours. */
  color: Hex | null;
  /** Whether it is in the air, even if it usually stands. */
  aloft: boolean;
}

/** The wishes of a prompt, and the seed that decides everything else. */
export interface ScenePlan {
  seed: number;
  /** The places to show. The first one is the ground. */
  places: readonly [Place, ...Place[]];
  time: Time;
  /** Whether the prompt names the time. If not, the seed chose it. */
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
  /** Whether the first subject sits on the second. */
  riding: boolean;
  /** Colours that the prompt gives to no thing. */
  accents: readonly Hex[];
  skyColor: Hex | null;
  placeColor: Hex | null;
  waterColor: Hex | null;
  leafColor: Hex | null;
}
