import { BIG_ANIMALS } from "./animals/big-animals.ts";
import { BIRDS } from "./animals/birds.ts";
import { PETS } from "./animals/pets.ts";
import { HOOFED } from "./animals/quadrupeds.ts";
import { SEA_LIFE } from "./animals/sea-life.ts";
import { SMALL_ANIMALS } from "./animals/small-animals.ts";
import { BUILDINGS } from "./buildings.ts";
import { FIGURES } from "./figures.ts";
import { FOOD } from "./food.ts";
import { FRUIT } from "./fruit.ts";
import type { Motif } from "./motif.ts";
import { OBJECTS } from "./objects.ts";
import { PEOPLE } from "./people.ts";
import { PLANTS } from "./plants.ts";
import { TABLEWARE } from "./tableware.ts";
import { TREASURES } from "./treasures.ts";
import { VEHICLES } from "./vehicles.ts";

const ALL = {
  ...PETS,
  ...HOOFED,
  ...BIG_ANIMALS,
  ...BIRDS,
  ...SEA_LIFE,
  ...SMALL_ANIMALS,
  ...FIGURES,
  ...PEOPLE,
  ...BUILDINGS,
  ...VEHICLES,
  ...PLANTS,
  ...FRUIT,
  ...FOOD,
  ...TABLEWARE,
  ...OBJECTS,
  ...TREASURES,
} satisfies Record<string, Motif>;

export type MotifName = keyof typeof ALL;
export const MOTIF_NAMES = Object.keys(ALL) as MotifName[];

const MOTIFS: Record<MotifName, Motif> = ALL;
const BY_WORD = new Map(
  MOTIF_NAMES.flatMap((name) => MOTIFS[name].words.split(" ").map((word) => [word, name] as const)),
);

export function motifNamed(name: MotifName): Motif {
  return MOTIFS[name];
}

/** Returns the motif that a word in the singular names, or null. */
export function motifOfWord(word: string): MotifName | null {
  return BY_WORD.get(word) ?? null;
}
