import { getBatch } from "../../../client/batches/get.ts";
import { listItems } from "../../../client/batches/list-items.ts";
import type { BatchItem } from "../../../client/wire/read-items.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { ITEM_STATUSES } from "../../../contract/statuses.ts";
import { standsFor } from "../../../runs/directory/run-state.ts";
import { retriedId } from "../../../runs/retry/retried-id.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { choiceOption, flagOption } from "../../command-line/option-values.ts";
import { requireReachable, resolveTarget, type Target, withUnknown } from "../../runs/targets.ts";
import { rememberedUpstream } from "../../runs/upstream.ts";
import { type ConnectedService, withService } from "../../service/with-service.ts";
import { recordLine } from "../../terminal/record-line.ts";
import type { Column } from "../../terminal/table.ts";

interface FoundItem extends BatchItem {
  batchId: string;
}

/** `imgbatch items`: lists the images of a batch or a run with their outcome. */
export const run: RunCommand = async (context) => {
  const { options, results, signal, output } = context;
  const status = choiceOption(options, "status", "--status", [...ITEM_STATUSES, "all"]) ?? "all";
  const target = await resolveTarget(context.arguments[0] ?? "", context.cwd);
  const needs = { workers: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    requireReachable([target], service);
    const all = await itemsOf(target, service, signal);
    const wanted = all.filter((item) => status === "all" || item.status === status);
    const isCut = results.isForPeople && !flagOption(options, "all");
    const shown = isCut ? wanted.slice(0, FIXED_LIMITS.itemPageDefault) : wanted;
    const hasMore = shown.length < wanted.length;
    if (hasMore) output.note(`${wanted.length - shown.length} more items: add --all`);
    if (wanted.length === 0) output.note(status === "all" ? "no items" : `no items are ${status}`);
    return withUnknown(target, context, {
      exitCode: EXIT_CODES.ok.code,
      json: {
        items: shown.map((item) => ({ ...item.raw, custom_id: item.customId, batch_id: item.batchId })),
        has_more: hasMore,
      },
      lines: results.isForPeople ? await table(shown, results.columns) : shown.map(record),
    });
  });
};

/** A retried image is listed once: with its last attempt, or with an earlier one that made the image. */
async function itemsOf(
  target: Target,
  { http }: ConnectedService,
  signal: AbortSignal,
): Promise<FoundItem[]> {
  const found = new Map<string, FoundItem>();
  for (const batchId of target.ids) {
    const entry = target.run?.state.batches.find(({ id }) => id === batchId);
    const ids = new Map(entry?.retried?.map((id) => [retriedId(id), id]));
    const listed = await listItems(http, batchId, signal);
    // Some services return an empty list for an unknown batch.
    if (listed.length === 0) await getBatch(http, batchId, { signal });
    for (const item of listed) {
      const customId = ids.get(item.customId) ?? item.customId;
      if (target.run !== null && !standsFor(target.run.state, batchId, customId)) continue;
      if (found.get(customId)?.status !== "success") found.set(customId, { ...item, customId, batchId });
    }
  }
  return [...found.values()];
}

/**
 * The columns are id, status, number of images, error code, error message, beginning of the prompt, batch, provider, model
 * version, seed, cost at the upstream in US dollars, and notes.
 */
function record(item: FoundItem): string {
  const { customId, status, imageCount, error, promptPreview, batchId, facts } = item;
  const { provider = "", model_version = "", seed = "", upstream_cost = "", notes = [] } = facts;
  const fields = [customId, status, imageCount, error?.code ?? "", error?.message ?? "", promptPreview ?? ""];
  return recordLine([...fields, batchId, provider, model_version, seed, upstream_cost, notes.join("; ")]);
}

async function table(items: readonly FoundItem[], columns: number): Promise<string[]> {
  if (items.length === 0) return [];
  // Measuring text takes longer to load than the rest of the command, and records need none.
  const { tableLines, widest } = await import("../../terminal/table.ts");
  const layout: Column<FoundItem>[] = [
    { title: "ITEM", of: ({ customId }) => customId },
    { title: "STATUS", of: ({ status }) => status },
    ...(items.some(({ facts }) => facts.provider !== undefined)
      ? [{ title: "PROVIDER", of: ({ facts }: FoundItem) => facts.provider ?? "" }]
      : []),
  ];
  const width = widest(tableLines(layout, items));
  const maxWidth = Math.max(10, columns - width - 2);
  const last: Column<FoundItem> = {
    title: "ERROR, NOTES OR PROMPT",
    maxWidth,
    of: ({ error, facts: { notes = [] }, promptPreview }) =>
      [...(error === null ? [] : [`${error.code}: ${error.message}`]), ...notes].join("; ") ||
      (promptPreview ?? ""),
  };
  return tableLines([...layout, last], items);
}
