import { TRANSITIONS } from "./batches/lifecycle.ts";
import { isIntact, readAhead } from "./downloads/piece-stream.ts";
import type { BlobStore } from "./ports/blob-store.ts";
import type { Repositories, Stores } from "./ports/stores.ts";
import type { OutputRecord } from "./records.ts";
import { expiringProblems } from "./retention.ts";

interface CheckReport {
  accounts: number;
  batches: number;
  images: number;
  /** One line for each broken invariant; empty when there is none. */
  problems: string[];
}

/** So many batches are one statement of the database: larger ones could exceed the time that a server gives to one. */
const AT_ONCE = 2000;

/** The steps of a history that the lifecycle allows. */
const STEPS = TRANSITIONS.flatMap(({ from, to }) => from.map((each) => `${each}>${to}`));

/** Yields the batches that break a rule, in windows of all batches. `done`: how many percent come before the end of the window. */
export async function* brokenBatches(now: Pick<Repositories, "audit">) {
  const { lastSeq } = await now.audit.extent();
  for (let afterSeq = 0; afterSeq < lastSeq; afterSeq += AT_ONCE) {
    const window = { afterSeq, toSeq: afterSeq + AT_ONCE };
    const done = Math.min(100, Math.floor((100 * window.toSeq) / lastSeq));
    yield { window, batches: await now.audit.batches(STEPS, window), done };
  }
}

/**
 * Verifies everything that must always be true of money, batches, items and files. Changes nothing. The database checks its
 * rows (`storage/repositories/audit.ts` has the rules). `onProgress` is called when a step begins or has come further.
 */
export async function checkInvariants(
  stores: Stores,
  blobs: BlobStore,
  onProgress: (text: string) => void = () => {},
): Promise<CheckReport> {
  onProgress("checking money and batches");
  const { outputs, ...report } = await stores.snapshot(async (now) => {
    const { accounts, batches } = await now.audit.extent();
    const problems = [
      ...told("account", await now.audit.accounts()),
      ...told("real-time request", await now.audit.requests()),
    ];
    const outputs: OutputRecord[] = [];
    for await (const { window, batches, done } of brokenBatches(now)) {
      onProgress(`checking money and batches: ${done} %`);
      problems.push(...told("batch", batches));
      for (const { batchId, customId, lost } of await now.audit.lostOutputs(window))
        problems.push(`batch ${batchId}: ${lost} of the images of ${customId} are lost: nothing names them`);
      for (const output of await now.audit.keptOutputs(window)) outputs.push(output);
    }
    return { accounts, batches, problems, outputs };
  });
  const read = async (output: OutputRecord) => ({ output, isGood: await isIntact(blobs, output) });
  const images = readAhead(outputs, { sizeOf: ({ sizeBytes }) => sizeBytes, read });
  let done = 0;
  for await (const { output, isGood } of images) {
    onProgress(`reading images: ${++done} of ${outputs.length}`);
    const { batchId, itemId, blobKey } = output;
    if (isGood) continue;
    if ((await stores.read.batches.byId(batchId))?.status === "output_deleted") continue;
    if ((await stores.read.outputs.ofItem(itemId)).length === 0) continue;
    const isMissing = (await blobs.sizeOf(blobKey)) === null;
    report.problems.push(`batch ${batchId}: the image ${blobKey} is ${isMissing ? "missing" : "damaged"}`);
  }
  report.problems.push(...(await expiringProblems({ stores, blobs })));
  return { ...report, images: outputs.length };
}

const told = (what: string, broken: readonly { id: string; problems: readonly string[] }[]) =>
  broken.flatMap(({ id, problems }) => problems.map((problem) => `${what} ${id}: ${problem}`));
