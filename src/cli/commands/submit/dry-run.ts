import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { formatUsd, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { readRunState, submittedBatches } from "../../../runs/directory/run-state.ts";
import { chooseKeys } from "../../../runs/plan/idempotency-keys.ts";
import type { Chunk, Plan } from "../../../runs/plan/plan.ts";
import type { CommandResult } from "../../command-line/command-context.ts";
import { type Budget, imagesOf } from "../../runs/budget.ts";
import type { SubmitOptions } from "./options.ts";

/**
 * Describes the planned run, and submits nothing. Batches that the directory has already cost nothing. Throws
 * `COST_LIMIT` as the run itself would.
 */
export async function describeDryRun(
  plan: Plan,
  options: SubmitOptions,
  budget: Budget,
): Promise<CommandResult> {
  const { chunks, items, request } = plan;
  const choice = { explicit: options.explicitKey, isNew: options.isNew };
  const runState = await readRunState(options.dir);
  const { keys } = chooseKeys(plan, choice, runState);
  const submitted = runState === null ? [] : submittedBatches(runState);
  const known = new Set(submitted.flatMap(({ id, idempotency_key }) => (id === null ? [] : idempotency_key)));
  const isReused = ({ index }: Chunk) => known.has(keys[index] ?? null);
  const fresh = chunks.filter((chunk) => !isReused(chunk));
  budget.approve(fresh);
  const cost = budget.estimate(fresh);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: {
      dry_run: true,
      directory: options.shownDir,
      model: request.model,
      item_count: items.length,
      image_count: imagesOf(chunks),
      estimated_cost: cost === null ? null : microsToNumber(cost),
      batches: chunks.map((chunk) => ({
        index: chunk.index,
        item_count: chunk.items.length,
        image_count: chunk.imageCount,
        idempotency_key: keys[chunk.index],
        replayed: isReused(chunk),
      })),
    },
    lines: [
      `${counted(items.length, "prompt")}, ${counted(imagesOf(chunks), "image")}, ${counted(chunks.length, "batch", "batches")} with ${request.model}`,
      ...(fresh.length === chunks.length
        ? []
        : [
            `${counted(chunks.length - fresh.length, "batch", "batches")} submitted before, re-used for $0.00`,
          ]),
      ...(cost === null ? [] : [`estimated cost ${formatUsd(cost)}`]),
      ...keys,
    ],
  };
}
