import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { Client } from "./client.mjs";
import { Memory } from "./memory.mjs";
import { seeded, shuffled } from "./random.mjs";
import { fixedStory } from "./stories.mjs";
import { readKey } from "./tale.mjs";
import { countCalls, hasStrace, KILL_CALLS } from "./victims.mjs";

/** Durable steps of the fixed story, counted generously: a kill behind the last one does not happen. */
const STEPS = 110;
const RANDOM_KILLS_A_STORY = 12;
/** One kill of this many is at a chosen point: those stories have one kill each. */
const FIXED_SHARE = 3;

/**
 * The stories, in an order that the seed decides: the fixed story once for every step and every system call at which
 * it can be killed, up to a third of the kills; and random stories with many kills each, every fifth with the real command.
 */
export async function plan({ seed, kills, root }) {
  const random = seeded(seed, "plan");
  const calls = hasStrace ? await killableCalls(root, kills) : [];
  const steps = Array.from({ length: STEPS }, (_, i) => ({
    step: Math.floor(i / 2) + 1,
    after: i % 2 === 1,
  }));
  // Every sync, rename, removal and commit comes before the hundreds of single writes of the database.
  const [writes, others] = [true, false].map((is) =>
    calls.filter(({ call }) => (call === "pwrite64") === is),
  );
  const ordered = [...shuffled([...others, ...steps], random), ...shuffled(writes, random)];
  const points = shuffled(ordered.slice(0, Math.ceil(kills / FIXED_SHARE)), random);
  const fixed = points.map((kill) => ({ kind: "fixed", plan: [kill] }));
  // More than enough of them: the count of kills ends it.
  const randoms = Array.from({ length: Math.ceil(kills / 6) + 1 }, (_, i) => ({
    kind: "random",
    isReal: i % 5 === 1,
    count: Math.min(RANDOM_KILLS_A_STORY, Math.max(1, Math.ceil((kills - points.length) / 2))),
  }));
  const all = kills < 50 ? [...fixed, ...randoms] : mixed(fixed, randoms);
  return all.map((story, number) => ({ ...story, number }));
}

/** Random stories between the fixed ones, so that a run that is cut short had both. */
function mixed(fixed, randoms) {
  const all = [...randoms];
  const every = fixed.length / Math.max(1, randoms.length / 2);
  for (let i = randoms.length - 1; i >= 0; i--) {
    all.splice(i, 0, ...fixed.slice(Math.floor(i * every), Math.floor((i + 1) * every)));
  }
  return all;
}

/** Every call of the fixed story, counted in one run of it per kind of call; a short run guesses: what does not come is no kill. */
async function killableCalls(root, kills) {
  const points = [];
  for (const { thread, call } of KILL_CALLS) {
    const whens = kills < 50 ? [2, 5, 9] : upTo(await count(root, { thread, call }));
    points.push(...whens.map((when) => ({ thread, call, when })));
  }
  return points;
}

const upTo = (last) => Array.from({ length: last }, (_, i) => i + 1);

async function count(root, { thread, call }) {
  const data = join(root, "count");
  await mkdir(data, { recursive: true });
  const generations = join(root, "count.log");
  const counted = await countCalls({ data, generations, thread, call }, async (url) => {
    const client = new Client(url, new Memory());
    await fixedStory(client, { keys: [await readKey(data)], prefix: "count" });
  });
  await rm(data, { recursive: true, force: true });
  return counted;
}
