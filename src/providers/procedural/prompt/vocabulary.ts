/** The place that a picture shows. `stage` is a plain studio, and `pattern` is no place at all. */
export type Place =
  | "mountains"
  | "sea"
  | "city"
  | "forest"
  | "meadow"
  | "desert"
  | "space"
  | "underwater"
  | "room"
  | "sky"
  | "stage"
  | "pattern";
export type Time = "dawn" | "day" | "sunset" | "night";
export type Weather = "clear" | "rain" | "snow" | "fog" | "storm";
export type Season = "spring" | "summer" | "autumn" | "winter";
export type Mood = "calm" | "bold" | "plain";
export const STYLES = [
  "flat",
  "watercolor",
  "minimal",
  "neon",
  "retro",
  "pixel",
  "line",
  "oil",
  "lowpoly",
  "mosaic",
  "dots",
] as const;
export type Style = (typeof STYLES)[number];
export type Tint = "none" | "mono" | "sepia" | "pastel" | "vivid" | "blueprint";
export const PATTERN_KINDS = [
  "tiles",
  "waves",
  "truchet",
  "rings",
  "facets",
  "halftone",
  "blobs",
  "grid",
  "weave",
] as const;
export type PatternKind = (typeof PATTERN_KINDS)[number];
export type Extra =
  | "rainbow"
  | "aurora"
  | "moon"
  | "sun"
  | "stars"
  | "clouds"
  | "birds"
  | "fireworks"
  | "river";

type Table<K extends string> = Partial<Record<K, string>>;

const PLACES: Table<Place> = {
  mountains:
    "mountain hill alp alps peak valley cliff volcano canyon glacier landscape fjord highland himalaya summit ridge",
  sea: "sea ocean beach coast shore island harbor harbour bay lake river wave surf seaside lagoon pond seascape tide pier port",
  city: "city street skyline town downtown skyscraper building urban tokyo paris london manhattan york metropolis alley avenue village cityscape road rooftop cyberpunk market",
  forest: "forest wood woodland jungle tree grove pine taiga rainforest swamp birch oak",
  meadow:
    "meadow field garden park grass farm prairie pasture lawn countryside savanna savannah orchard vineyard yard picnic",
  desert: "desert dune sahara oasis mars martian wasteland egypt pyramid outback",
  space:
    "space galaxy cosmos universe planet nebula orbit asteroid comet cosmic solar interstellar saturn jupiter constellation",
  underwater: "underwater reef aquarium seabed undersea submarine abyss kelp",
  room: "room kitchen table desk interior studio shelf office bedroom cafe windowsill window cozy indoors library",
  sky: "sky cloudscape heaven heavens airborne",
};
const TIMES: Table<Time> = {
  night:
    "night northern-light aurora borealis midnight nighttime nocturnal moonlit moonlight moon star starry dark stars aurora firework fireworks cyberpunk neon",
  sunset: "sunset dusk evening twilight golden-hour sundown",
  dawn: "dawn sunrise morning daybreak",
  day: "day noon daylight sunny midday afternoon daytime",
};
const WEATHERS: Table<Weather> = {
  rain: "rain rainy drizzle raining shower monsoon",
  snow: "snow snowy snowing blizzard snowfall icy frozen frost arctic snowstorm",
  fog: "fog foggy mist misty haze hazy",
  storm: "storm stormy thunder lightning thunderstorm tempest hurricane",
};
const SEASONS: Table<Season> = {
  spring: "spring springtime blossom bloom sakura april cherry-blossom",
  summer: "summer tropical july",
  autumn: "autumn fall autumnal october november harvest",
  winter:
    "polar-bear penguin snowman winter wintry december january christmas snow snowy ice icy frozen arctic blizzard frost",
};
const MOODS: Table<Mood> = {
  calm: "calm quiet peaceful serene soft gentle tranquil dreamy sleepy cozy zen delicate",
  bold: "bold dramatic epic stormy vivid intense dynamic energetic wild vibrant fierce",
};
const STYLE_WORDS: Table<Style> = {
  watercolor: "watercolor watercolour aquarelle wash gouache",
  minimal: "minimalist minimal minimalism simple clean",
  neon: "neon cyberpunk synthwave vaporwave glowing tron fluorescent",
  retro: "retro vintage 60s 70s 80s 50s midcentury nostalgic travel-poster deco",
  pixel: "pixel pixel-art pixelart pixelated 8bit 16bit voxel bit",
  line: "lineart line-art line sketch drawing pencil outline ink doodle engraving etching coloring blueprint",
  oil: "oil van-gogh impressionist impressionism impressionistic gogh monet brushstroke painterly expressionist acrylic",
  lowpoly: "lowpoly low-poly polygonal polygon poly origami faceted",
  mosaic: "mosaic stained stained-glass byzantine tesserae",
  dots: "pointillism pointillist seurat popart lichtenstein",
};
const TINTS: Table<Tint> = {
  mono: "black-and-white monochrome monochromatic grayscale greyscale noir bw charcoal-drawing",
  sepia: "sepia steampunk daguerreotype",
  pastel: "pastel kawaii",
  vivid: "vibrant vivid colorful colourful saturated psychedelic rainbow",
  blueprint: "blueprint schematic",
};
const PATTERNS: Table<PatternKind> = {
  tiles: "tile tiles tiling geometric geometry quilt patchwork checkered bauhaus",
  waves: "waves wavy flow flowing ripple liquid fluid sound music rhythm",
  truchet: "truchet maze labyrinth knot tangle pipes",
  rings: "concentric circle target circles ring rings spiral mandala radial hypnotic",
  facets: "crystal facet facets triangle triangles prism gem-pattern shards",
  halftone: "halftone dots dotted polka",
  blobs: "blob blobs organic lava marble gradient aurora-pattern",
  grid: "grid mondrian stripes striped blocks squares plaid tartan",
  weave: "weave woven basket braid textile fabric",
};
/** Words that ask for a pattern instead of a place or a thing. */
const PATTERN_WORDS = new Set(
  "abstract pattern wallpaper texture background geometric tile tiling halftone truchet concentric mandala seamless gradient fractal ornament motif".split(
    " ",
  ),
);
const EXTRAS: Table<Extra> = {
  rainbow: "rainbow",
  aurora: "northern-light aurora borealis northern",
  moon: "moon moonlit moonlight crescent",
  sun: "sun sunny sunrise sunset sunshine",
  stars: "star starry milky stargazing",
  clouds: "cloud cloudy overcast clouds",
  birds: "seagull gull flock",
  fireworks: "firework fireworks",
  river: "river stream creek brook waterfall",
};

function index<K extends string>(table: Table<K>): ReadonlyMap<string, K> {
  const entries = Object.entries(table) as [K, string][];
  return new Map(entries.flatMap(([key, words]) => words.split(" ").map((word) => [word, key] as const)));
}

export const placeWords = index(PLACES);
export const timeWords = index(TIMES);
export const weatherWords = index(WEATHERS);
export const seasonWords = index(SEASONS);
export const moodWords = index(MOODS);
export const styleWords = index(STYLE_WORDS);
export const tintWords = index(TINTS);
export const patternWords = index(PATTERNS);
export const extraWords = index(EXTRAS);

/** Whether a word asks for a pattern instead of a scene. */
export function isPatternWord(word: string): boolean {
  return PATTERN_WORDS.has(word);
}
