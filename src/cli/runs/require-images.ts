import type { Batch } from "../../client/wire/read-batch.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { nextCommand, type Whereabouts } from "../result/next-command.ts";
import type { Target } from "./targets.ts";

/**
 * Throws `BATCH_IMAGE_OUTPUT_DELETED` if the service has deleted a batch or its images, unless the directory of the run has
 * all of them.
 */
export async function requireImages(
  targets: readonly Target[],
  batches: readonly Batch[],
  where: Whereabouts,
): Promise<void> {
  for (const { argument, ids, run } of targets) {
    const deleted = run?.state.batches.filter(({ record_deleted }) => record_deleted === true) ?? [];
    const gone =
      batches.find(({ id, status }) => ids.includes(id) && status === "output_deleted")?.id ?? deleted[0]?.id;
    if (gone == null) continue;
    if (run !== null) {
      // Few commands come this far, and reading the files of a run takes libraries that load slowly.
      const { isWholeHere } = await import("../../runs/outcome/whole-here.ts");
      if (await isWholeHere(run.dir)) continue;
    }
    const advice =
      run === null
        ? "the directory of the run may have them: the download command with that directory checks its files"
        : `${nextCommand(where, "download", argument)} (checks the files that are here, and says how to make the others)`;
    throw new ImgbatchError("BATCH_IMAGE_OUTPUT_DELETED", `The images of ${gone} were deleted.`, { advice });
  }
}
