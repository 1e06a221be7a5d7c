import { setTimeout as sleep } from "node:timers/promises";
import { type Customer, Gone } from "./customer.ts";
import type { Random } from "./random.ts";

const MODEL = "vendorx-3.1-flash-image";
const PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const OTHER_PICTURE =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const DIRECTIVES = [
  "[[fail:SAFETY_BLOCKED]]",
  "[[fail-once:PROVIDER_TIMEOUT]]",
  "[[fail-once:PROVIDER_ITEM_FAILED]]",
  "[[empty]]",
  "[[images:2]]",
  "[[images:3]]",
  "[[delay:5ms]]",
  "[[delay:40ms]]",
  "[[bad-bytes]]",
];

let numbers = 0;
const reference = (data: string) => ({ mime_type: "image/png", data });

function randomBody(random: Random, name: string): object {
  const items = Array.from({ length: random.whole(1, 4) }, (_, i) => {
    const directive = random.chance(0.4) ? ` ${random.pick(DIRECTIVES)}` : "";
    const pictures = random.chance(0.15) ? [reference(PICTURE), reference(OTHER_PICTURE)] : [];
    return {
      custom_id: `i${i}`,
      prompt: `${name} ${i}${directive}`,
      ...(i > 0 && random.chance(0.2) ? { output_count: 2 } : {}),
      ...(pictures.length > 0 ? { reference_images: pictures.slice(random.whole(0, 1)) } : {}),
    };
  });
  return { model: MODEL, task_name: name, items };
}

/** The next acts of a customer, by weight. */
const DEEDS = (
  [
    [6, "create"],
    [2, "again"],
    [4, "poll"],
    [2, "items"],
    [2, "cancel"],
    [1, "deleteOutputs"],
    [1, "deleteRecord"],
    [2, "content"],
    [2, "zip"],
  ] as const
).flatMap(([weight, deed]) => Array<typeof deed>(weight).fill(deed));

interface StoryOptions {
  keys: readonly string[];
  random: Random;
  prefix: string;
  /** How many do it at the same time; default 3. */
  clients?: number;
  /** After each act; default 0. */
  pauseMs?: number;
}

/** Does what chance says until the service is gone. */
export async function randomStory(
  customer: Customer,
  { keys, random, clients = 3, prefix, pauseMs = 0 }: StoryOptions,
): Promise<void> {
  const newest = <T>(all: Map<string, T>) => [...all.values()].slice(-12);
  const live = async () => {
    for (;;) {
      const entry = customer.batches.size > 0 ? random.pick(newest(customer.batches)) : null;
      const deed = random.pick(DEEDS);
      if (deed === "create" || entry === null) {
        const name = `${prefix}-${++numbers}`;
        await customer.create(customer.want(name, random.pick(keys), randomBody(random, name)));
      } else if (deed === "again") await customer.create(random.pick(newest(customer.wants)));
      else await customer[deed](entry);
      if (pauseMs > 0) await sleep(pauseMs);
    }
  };
  const lives = await Promise.allSettled(Array.from({ length: clients }, () => untilGone(live())));
  for (const one of lives) if (one.status === "rejected") throw one.reason;
}

/** Does everything once, always in the same order. Returns whether it came to its end. */
export function fixedStory(customer: Customer, key: string, prefix: string): Promise<boolean> {
  const create = async (name: string, items: object[]) => {
    const body = { model: MODEL, task_name: name, items };
    const entry = await customer.create(customer.want(`${prefix}-${name}`, key, body));
    if (entry === null) throw new Error("the account is poor");
    return entry;
  };
  const story = async () => {
    const pictures = [reference(PICTURE), reference(OTHER_PICTURE)];
    const first = await create("first", [
      { custom_id: "a", prompt: `${prefix} one`, reference_images: pictures },
      { custom_id: "b", prompt: `${prefix} two [[images:2]]`, output_count: 2 },
      { custom_id: "c", prompt: `${prefix} three [[fail:SAFETY_BLOCKED]]` },
    ]);
    await customer.until(first);
    const second = await create("second", [
      { custom_id: "a", prompt: `${prefix} four` },
      { custom_id: "b", prompt: `${prefix} five [[delay:5s]]`, reference_images: pictures.slice(1) },
    ]);
    await customer.until(second, (batch) => batch.success_count > 0);
    await customer.cancel(second);
    await customer.zip(first);
    await customer.deleteOutputs(first);
    await customer.deleteRecord(second);
    const once = `${prefix} six [[fail-once:PROVIDER_TIMEOUT]]`;
    await customer.until(await create("third", [{ custom_id: "a", prompt: once }]));
  };
  return untilGone(story());
}

/** Whether the story came to its end before the service was gone. */
export async function untilGone(story: Promise<void>): Promise<boolean> {
  try {
    await story;
    return true;
  } catch (error) {
    if (error instanceof Gone) return false;
    throw error;
  }
}
