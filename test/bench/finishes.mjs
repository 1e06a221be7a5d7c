import { finishItem, joinFinishes } from "../../build/domain/batches/finish-item.js";
import { EarlyReadBack } from "../../build/domain/batches/read-back/early-read-back.js";
import { timed } from "./measure.mjs";
import { makeBatches } from "./shared-stores.mjs";

const ITEMS = 2000;
const AT_ONCE = 16;
const ROUNDS = 3;

const FACTS = { mimeType: "image/png", widthPx: 1, heightPx: 1, decodedPixels: 1 };
const MADE = { images: [{ bytes: Buffer.alloc(1), facts: FACTS }], modelVersion: "m" };
/** Only the database is measured. */
const blobs = {
  put: async () => ({ sizeBytes: 1, sha256: "0".repeat(64), crc32: 0 }),
  delete: async () => {},
  versionOf: () => null,
};
const earlyReadBack = new EarlyReadBack(blobs);

/** How many items a second PostgreSQL records as made, in one batch and in 20, with 16 under way. */
export async function measureFinishes({ stores, sql }) {
  const row = async (name, batches, wanted) => {
    const { rate, inATransaction } = await bestRate(stores, sql, batches);
    return {
      name: `items finished in ${name} on PostgreSQL, against ${wanted} a second`,
      value: rate / wanted,
      goal: { atLeast: 1 },
      facts: { rate: `${rate.toFixed(0)} a second, ${inATransaction.toFixed(1)} in a transaction` },
    };
  };
  return [await row("one batch", 1, 600), await row("20 batches", 20, 2400)];
}

async function bestRate(stores, sql, batches) {
  const finishes = joinFinishes(stores);
  let best = { rate: 0, inATransaction: 0 };
  for (let round = 0; round < ROUNDS; round++) {
    const ids = await makeBatches(stores, batches, ITEMS / batches);
    await sql("update items set lease_token = 'token' where status = 'pending'");
    const lists = await Promise.all(
      ids.map((id) => stores.read.items.page(id, { afterPosition: -1, limit: ITEMS })),
    );
    // Turn about among the batches.
    const queue = lists[0].flatMap((_, at) => lists.map((list) => ({ ...list[at], leaseToken: "token" })));
    const batch = await stores.read.batches.byId(ids[0]);
    const work = async () => {
      for (let item = queue.pop(); item !== undefined; item = queue.pop()) {
        const end = await finishItem({ stores, blobs, earlyReadBack, finishes }, batch, item, MADE, Date.now);
        if (end !== "success") throw new Error(`an item ended with ${end}`);
      }
    };
    const before = await countTransactions(sql);
    const ms = await timed(() => Promise.all(Array.from({ length: AT_ONCE }, work)));
    const inATransaction = ITEMS / ((await countTransactions(sql)) - before);
    const rate = (ITEMS / ms) * 1000;
    if (rate > best.rate) best = { rate, inATransaction };
  }
  return best;
}

const countTransactions = async (sql) => Number(await sql("select sum(count) from commits"));
