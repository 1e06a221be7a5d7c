// Creates a batch several times at once with one idempotency key, on the database itself and beside other processes that
// do the same:
//   node creators.mjs DATA_DIRECTORY COUNT
// Says `ready`, waits for SIGUSR2, and prints what it got: for each the id, whether it was replayed, or the error's code.

import { once } from "node:events";
import { LOCAL_STORAGE } from "../../build/config/storage-places.js";
import { createBatch } from "../../build/domain/batches/create-batch.js";
import { imageInMemory } from "../../build/domain/images/sent-image.js";
import { systemClock } from "../../build/kernel/clock.js";
import { randomIds } from "../../build/kernel/ids.js";
import { openStorage } from "../../build/service/storage/open-storage.js";

const [directory, count] = process.argv.slice(2);
const { stores, blobs, close } = await openStorage(LOCAL_STORAGE, { directory });
const [key] = await stores.read.keys.list();
const group = { name: "default", rateMultiplier: 1, batchDiscount: 0.5, holdMultiplier: 0.6 };
const image = imageInMemory(Buffer.from("a reference image"));
const { sha256 } = image;
const reference = { id: null, type: null, mimeType: "image/png", storageUri: null, image, sha256 };
const request = {
  model: { id: "m", prices: { "1K": 0.01 } },
  taskName: null,
  parentBatchId: null,
  mimeType: "image/png",
  metadata: null,
  items: [{ customId: "a", prompt: "a", outputCount: 2, references: [reference] }],
  hash: "the same",
};
const deps = {
  stores,
  blobs,
  clock: systemClock,
  ids: randomIds,
  offers: {
    first: () => ({ provider: { name: "p" }, executedModel: "m", rateMultiplier: 1 }),
    serving: () => [],
  },
  workersRunning: () => true,
};
const awake = setInterval(() => {}, 1000);
const told = once(process, "SIGUSR2");
process.stdout.write('"ready"\n');
await told;
clearInterval(awake);
const answers = await Promise.all(
  Array.from({ length: Number(count) }, () =>
    createBatch(deps, { key, group }, request, "one key").then(
      ({ batch, replayed }) => ({ id: batch.id, replayed }),
      (error) => ({ error: String(error) }),
    ),
  ),
);
process.stdout.write(`${JSON.stringify(answers)}\n`);
await close();
