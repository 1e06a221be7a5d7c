import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { formatUsd, microsToNumber } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { readRunState } from "../../../runs/directory/run-state.ts";
import { chooseKeys } from "../../../runs/plan/idempotency-keys.ts";
import type { Plan } from "../../../runs/plan/plan.ts";
import type { CommandResult } from "../../command-line/command-context.ts";
import { type Budget, imagesOf } from "../../runs/budget.ts";
import type { SubmitOptions } from "./options.ts";

/** Describes the planned run, and submits nothing. Throws `COST_LIMIT` as the run itself would. */
export async function describeDryRun(
  plan: Plan,
  options: SubmitOptions,
  budget: Budget,
): Promise<CommandResult> {
  const { chunks, items, request } = plan;
  const choice = { explicit: options.explicitKey, isNew: options.isNew };
  const { keys } = chooseKeys(plan, choice, await readRunState(options.dir));
  budget.approve(chunks);
  const cost = budget.estimate(chunks);
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
      })),
    },
    lines: [
      `${counted(items.length, "prompt")}, ${counted(imagesOf(chunks), "image")}, ${counted(chunks.length, "batch", "batches")} with ${request.model}`,
      ...(cost === null ? [] : [`estimated cost ${formatUsd(cost)}`]),
      ...keys,
    ],
  };
}
