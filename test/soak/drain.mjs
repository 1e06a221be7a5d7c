import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fromBufferPromise } from "yauzl";
import { sha256 } from "./client.mjs";
import { expect, hasEnded } from "./memory.mjs";

const PATIENCE_MS = 60_000;

/** Sends every create once more, waits until everything has ended, and checks every batch and image through the API. */
export async function drain(client) {
  const { memory } = client;
  for (const want of memory.wants.values()) await client.create(want);
  const deadline = Date.now() + PATIENCE_MS;
  for (const entry of memory.batches.values()) {
    for (;;) {
      const batch = await client.look(entry);
      if (batch === null || hasEnded(batch.status)) break;
      expect(Date.now() < deadline, `${entry.id} does not end: ${JSON.stringify(batch)}`);
      await sleep(5);
    }
    await checkBatch(client, entry);
  }
}

async function checkBatch(client, entry) {
  const items = await client.items(entry);
  if (items === null) return;
  const { view } = entry;
  const count = (status) => items.filter((item) => item.status === status).length;
  expect(
    count("success") === view.success_count &&
      count("failed") === view.fail_count &&
      items.length === view.item_count,
    `${entry.id}: its items are not what it counts`,
  );
  const zip = await client.zip(entry);
  if (zip === null) return;
  const entries = await unzip(zip);
  const { files } = JSON.parse(entries.get("manifest.json"));
  const images = items.reduce((sum, item) => sum + item.image_count, 0);
  expect(files.length === images, `${entry.id}: ${images} images, ${files.length} in the manifest`);
  for (const file of files) {
    const bytes = await client.content(entry, file.custom_id, file.image_index);
    const what = `${entry.id} ${file.custom_id}`;
    expect(
      bytes !== null && sha256(bytes) === file.sha256,
      `${what}: its bytes are not those of the manifest`,
    );
    expect(sha256(entries.get(file.filename)) === file.sha256, `${what}: the ZIP has other bytes`);
  }
}

async function unzip(bytes) {
  const zip = await fromBufferPromise(bytes, { lazyEntries: true });
  const entries = new Map();
  for await (const entry of zip.eachEntry()) {
    entries.set(entry.fileName, await buffer(await zip.openReadStreamPromise(entry)));
  }
  return entries;
}
