import { setTimeout as sleep } from "node:timers/promises";
import { Gone } from "./client.mjs";
import { hasEnded } from "./memory.mjs";

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
const reference = (data) => ({ mime_type: "image/png", data });

function randomBody(random, name) {
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

/** The next acts of a client, by weight. */
const DEEDS = [
  [6, "create"],
  [2, "again"],
  [4, "look"],
  [2, "items"],
  [2, "cancel"],
  [1, "deleteOutputs"],
  [1, "deleteRecord"],
  [2, "content"],
  [2, "zip"],
].flatMap(([weight, deed]) => Array(weight).fill(deed));

/** Clients that do what chance says until the service is gone, with a pause after each act. */
export async function randomStory(client, { keys, random, clients = 3, prefix, pauseMs = 0 }) {
  const { memory } = client;
  const live = async () => {
    try {
      for (;;) {
        const entry = memory.batches.size > 0 ? random.pick([...memory.batches.values()].slice(-12)) : null;
        const deed = random.pick(DEEDS);
        if (deed === "create" || entry === null) {
          const name = `${prefix}-${++numbers}`;
          await client.create(memory.want(name, random.pick(keys), randomBody(random, name)));
        } else if (deed === "again") await client.create(random.pick([...memory.wants.values()].slice(-12)));
        else if (deed === "content") await client.content(entry, "i0");
        else await client[deed](entry);
        if (pauseMs > 0) await sleep(pauseMs);
      }
    } catch (error) {
      if (!(error instanceof Gone)) throw error;
    }
  };
  const lives = await Promise.allSettled(Array.from({ length: clients }, live));
  for (const { reason } of lives) if (reason) throw reason;
}

/** One client that does everything once, always in the same order. Answers whether it came to its end. */
export async function fixedStory(client, { keys: [key], prefix }) {
  const { memory } = client;
  const create = (name, items) =>
    client.create(memory.want(`${prefix}-${name}`, key, { model: MODEL, task_name: name, items }));
  try {
    const first = await create("first", [
      {
        custom_id: "a",
        prompt: `${prefix} one`,
        reference_images: [reference(PICTURE), reference(OTHER_PICTURE)],
      },
      { custom_id: "b", prompt: `${prefix} two [[images:2]]`, output_count: 2 },
      { custom_id: "c", prompt: `${prefix} three [[fail:SAFETY_BLOCKED]]` },
    ]);
    await ended(client, first);
    const second = await create("second", [
      { custom_id: "a", prompt: `${prefix} four` },
      { custom_id: "b", prompt: `${prefix} five [[delay:5s]]`, reference_images: [reference(PICTURE)] },
    ]);
    await ended(client, second, (batch) => batch.success_count > 0);
    await client.cancel(second);
    await client.zip(first);
    await client.deleteOutputs(first);
    await client.deleteRecord(second);
    const third = await create("third", [
      { custom_id: "a", prompt: `${prefix} six [[fail-once:PROVIDER_TIMEOUT]]` },
    ]);
    await ended(client, third);
    return true;
  } catch (error) {
    if (error instanceof Gone) return false;
    throw error;
  }
}

async function ended(client, entry, is = (batch) => hasEnded(batch.status)) {
  for (
    let batch = entry.view;
    batch && !is(batch) && !hasEnded(batch.status);
    batch = await client.look(entry)
  ) {
    await new Promise((done) => setTimeout(done, 5));
  }
}
