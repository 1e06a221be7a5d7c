import type { Batch } from "../../client/batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { makerOf } from "../../runs/directory/run-state.ts";
import { otherMaker, type RunService } from "../../runs/directory/service-identity.ts";
import { findBatch, unknownBatches } from "../../runs/run-batches.ts";
import { nextCommand, type Whereabouts } from "../result/next-command.ts";
import { goingOnHere } from "../result/next-steps.ts";
import type { Target } from "./targets.ts";

/**
 * Throws `BATCH_IMAGE_OUTPUT_DELETED` if the service has deleted a batch or its images, and `BATCH_IMAGE_NOT_FOUND` if it
 * does not know a batch of a run, unless the directory of the run has all images.
 */
export async function requireImages(
  targets: readonly Target[],
  batches: readonly Batch[],
  service: RunService,
  where: Whereabouts,
): Promise<void> {
  for (const target of targets) {
    const unknown = await unknownRun(target, batches, service, where);
    if (unknown !== null && !unknown.isWhole) throw unknown.error;
    const { argument, ids, run } = target;
    const gone = batches.find(({ id, status }) => ids.includes(id) && status === "output_deleted");
    if (gone === undefined || (run !== null && (await isWhole(run.dir)))) continue;
    const advice = run === null ? WITHOUT_RUN : toCheck(where, argument);
    throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${gone.id} were deleted.`, {
      advice,
    });
  }
}

const WITHOUT_RUN =
  "the directory of the run may have them: the download command with that directory checks its files";

const toCheck = (where: Whereabouts, argument: string) =>
  `${nextCommand(where, "download", argument)} (checks the files that are here, and says how to make the others)`;

/**
 * Returns why the service does not know a batch of a run, and whether all images are here; null if it knows all batches, or
 * makes all images of the others again.
 */
export async function unknownRun(
  { argument, run }: Pick<Target, "argument" | "run">,
  batches: readonly Batch[],
  service: RunService,
  where: Whereabouts,
): Promise<{ error: ImgbatchError; isWhole: boolean } | null> {
  if (run === null) return null;
  const unknown = unknownBatches(run.state, batches, service);
  const [reason] = unknown.values();
  if (reason === undefined) return null;
  const { code, message } = reason;
  const advice = code === "BATCH_IMAGE_NOT_FOUND" ? goingOnHere(where, argument) : toCheck(where, argument);
  const error = new ImgbatchError(code, message, { advice });
  if (await isWhole(run.dir)) return { error, isWhole: true };
  const known = run.state.batches.filter((entry) => !unknown.has(entry));
  const again = new Set(known.flatMap(({ images = [] }) => images));
  return again.size > 0 && (await isWhole(run.dir, again)) ? null : { error, isWhole: false };
}

/**
 * Throws `BATCH_IMAGE_NOT_FOUND` if a run has images that are missing here, and batches of another service or key that this
 * one does not know: nothing more is made here unasked.
 */
export async function requireKnown(
  target: Pick<Target, "argument" | "run">,
  service: RunService,
  { global, signal }: { global: Whereabouts; signal: AbortSignal },
): Promise<void> {
  const { run } = target;
  if (run === null) return;
  const batches: Batch[] = [];
  for (const entry of run.state.batches) {
    const { id } = entry;
    const isOther = otherMaker(makerOf(run.state, entry), service) !== null;
    if (isOther && id !== null) batches.push(await findBatch(service.http, entry, id, signal));
  }
  const unknown = await unknownRun(target, batches, service, global);
  if (unknown !== null && !unknown.isWhole) throw unknown.error;
}

/** Few commands come this far, and reading the files of a run takes libraries that load slowly. */
async function isWhole(dir: string, again?: ReadonlySet<string>): Promise<boolean> {
  const { isWholeHere } = await import("../../runs/recorded.ts");
  return isWholeHere(dir, again);
}
