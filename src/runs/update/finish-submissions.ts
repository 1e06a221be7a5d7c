import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { INPUT_FILE } from "../directory/names.ts";
import { submittedBatches } from "../directory/run-state.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import type { RunService } from "../directory/service-identity.ts";
import { type Plan, planRun } from "../plan/plan.ts";
import { readPromptFiles } from "../plan/prompt-files.ts";
import { isRefused } from "../plan/update.ts";
import { sendBatches } from "../retry/send-batches.ts";
import { isUnsentHere } from "../run-batches.ts";
import { type StartOptions, startRun } from "../submit/start-run.ts";

/** The batches of a run that this service may have made without an answer. Their images would be paid for and lost. */
function openBatches(state: RunState, service: RunService): RunBatch[] {
  return state.batches.filter((batch) => isUnsentHere(state, batch, service) && !isRefused(batch));
}

/** The number of images of the open batches of a run. */
export function openImages(state: RunState, service: RunService): number {
  return openBatches(state, service).reduce(
    (sum, { retried, asked_count: asked = 1 }) => sum + (retried?.length ?? asked),
    0,
  );
}

/**
 * Sends the open batches of a run as they were planned, before its prompts are changed, and returns its new state. Batches
 * that the service has already made are found by their keys. Throws `DIRECTORY_CONFLICT` if the requests are not known any
 * more.
 */
export async function finishSubmissions(
  options: StartOptions & { limits: Limits; imageConsentMicroUsd: number | null },
  earlier: RunState,
): Promise<RunState> {
  const { dir, limits, reporter, service, imageConsentMicroUsd } = options;
  const open = openBatches(earlier, service);
  if (open.length > 0) reporter.note("finishing the earlier submission first");
  let state = earlier;
  if (open.some(({ round }) => round === 0)) {
    const plan = await earlierPlan(dir, earlier, limits);
    const keys = { explicit: null, isNew: false };
    const approve = async () => imageConsentMicroUsd;
    ({ state } = await startRun({ ...options, plan, keys, approve }));
  }
  if (open.every(({ round }) => round === 0)) return state;
  return (await sendBatches({ ...options, state }, { isWanted: (entry) => !isRefused(entry) })).state;
}

/** Plans the submission of a run again. The largest batch gives the limit: it splits the run as the one of then. */
async function earlierPlan(dir: string, state: RunState, limits: Limits): Promise<Plan> {
  const submitted = submittedBatches(state);
  const most = Math.max(...submitted.map(({ asked_count: asked = 0 }) => asked));
  const source = { name: INPUT_FILE, cwd: dir, stdin: () => neverRead() };
  const { request } = state;
  if (request !== null && most > 0) {
    const items = await readPromptFiles([source], { limits, defaultCount: 1 });
    const { model, task_name: name, response_mime_type: mimeType, metadata, images } = request;
    const parentId = submitted.find(({ id }) => id === null)?.parent_batch_id ?? null;
    const wanted = { model, name, parentId, mimeType, metadata, items, isReal: images === "real" };
    const plan = planRun(wanted, { ...limits, itemsPerBatch: most, outputImagesPerBatch: most });
    if (plan.inputSha256 === state.input_sha256 && plan.chunks.length === submitted.length) return plan;
  }
  const message = `The earlier submission of ${dir} was not finished, and its files do not say how it was made: it may have made images that are not known here.`;
  const advice =
    "run the earlier submit command with the earlier prompts again, or name another directory with --output";
  throw new ImgbatchError("DIRECTORY_CONFLICT", message, { advice });
}

async function* neverRead(): AsyncGenerator<Uint8Array> {}
