import type { BatchItem } from "../../client/answers.ts";
import { getBatch, listItems } from "../../client/batches.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { ITEM_STATUSES } from "../../contract/statuses.ts";
import type { Http } from "../../http/http.ts";
import { retriedId, standsFor } from "../../runs/directory/run-state.ts";
import { findBatch, recordedItems } from "../../runs/run-batches.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import type { ConnectedService } from "../connect/connection.ts";
import * as option from "../options.ts";
import { recordLine } from "../output/batches.ts";
import { unknownNote } from "../output/next-step.ts";
import type { Column } from "../output/table.ts";
import { rememberedUpstream, resolveTarget, type Target, unknownRun, withUnknown } from "../targets.ts";
import { asking, target } from "./shared-options.ts";

const options = {
  status: option.choice({
    flags: "--status <status>",
    description: "only pending, success or failed items",
    choices: [...ITEM_STATUSES, "all"],
  }),
  all: option.flag({ flags: "--all", description: "list every item, not only the first 100" }),
};

export const command = defineCommand({
  arguments: [target],
  options,
  examples: ["imgbatch items prompts-images --status failed"],
  exits: asking,
  run,
});

interface FoundItem extends BatchItem {
  batchId: string;
}

/** `imgbatch items`: lists the images of a batch or a run with their outcome. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { options, results, output } = context;
  const { status = "all" } = options;
  const target = await resolveTarget(context.arguments[0] ?? "", context.cwd);
  const needs = { workers: false, ...rememberedUpstream([target]) };
  return withService(context, needs, async (service) => {
    const all = await itemsOf(target, service, context);
    const wanted = all.filter((item) => status === "all" || item.status === status);
    const isCut = results.isForPeople && !options.all;
    const shown = isCut ? wanted.slice(0, FIXED_LIMITS.itemPageDefault) : wanted;
    const hasMore = shown.length < wanted.length;
    if (hasMore) output.note(`${wanted.length - shown.length} more items: add --all`);
    if (wanted.length === 0) output.note(status === "all" ? "no items" : `no items are ${status}`);
    return withUnknown(target, service, context, {
      json: {
        items: shown.map((item) => ({ ...item.raw, custom_id: item.customId, batch_id: item.batchId })),
        has_more: hasMore,
      },
      lines: results.isForPeople ? await table(shown, results.columns) : shown.map(record),
    });
  });
}

/** A retried image is listed once: with the last attempt that made it, or with the last one. */
async function itemsOf(
  target: Target,
  service: ConnectedService,
  { signal, output, global }: Pick<CommandContext, "signal" | "output" | "global">,
): Promise<FoundItem[]> {
  const { http } = service;
  const found = new Map<string, FoundItem>();
  for (const batchId of target.ids) {
    const entry = target.run?.state.batches.find(({ id }) => id === batchId);
    const ids = new Map(entry?.images?.map((id) => [retriedId(id), id]));
    const listed = await listOf(http, batchId, signal).catch(async (error) => {
      const here = await resultsOf(target, batchId, error);
      if (entry === undefined) throw error;
      const batch = await findBatch(http, entry, batchId, signal);
      const unknown = await unknownRun(target, [batch], service, global);
      if (here.length === 0) throw unknown?.error ?? error;
      if (unknown !== null) output.note(unknownNote(unknown.error, "these are the results that are here"));
      return here;
    });
    for (const item of listed) {
      const customId = ids.get(item.customId) ?? item.customId;
      if (target.run !== null && !standsFor(target.run.state, batchId, customId)) continue;
      if (item.status === "success" || found.get(customId)?.status !== "success")
        found.set(customId, { ...item, customId, batchId });
    }
  }
  return inInputOrder(target, [...found.values()]);
}

/** The batches of an update come after the others, wherever its prompts stand. */
async function inInputOrder({ run }: Target, items: FoundItem[]): Promise<FoundItem[]> {
  if (run?.state.updates === undefined) return items;
  const { readRunInput } = await import("../../runs/directory/input.ts");
  const order = new Map([...(await readRunInput(run.dir)).keys()].map((id, index) => [id, index]));
  const rank = ({ customId }: FoundItem) => order.get(customId) ?? order.size;
  return items.sort((a, b) => rank(a) - rank(b));
}

async function listOf(http: Http, batchId: string, signal: AbortSignal): Promise<BatchItem[]> {
  const items = await listItems(http, batchId, signal);
  // Some services return an empty list for an unknown batch.
  if (items.length === 0) await getBatch(http, batchId, { signal });
  return items;
}

/** Returns the items of a batch that the service does not know any more, from the results of its run. */
async function resultsOf({ run }: Target, batchId: string, error: unknown): Promise<BatchItem[]> {
  if (run === null || !(error instanceof ImgbatchError) || error.code !== "BATCH_IMAGE_NOT_FOUND") return [];
  // Reading the files of a run takes libraries that load slowly.
  const { readResults } = await import("../../runs/directory/results.ts");
  const isRetry = run.state.batches.some(({ id, images }) => id === batchId && images !== undefined);
  return recordedItems(await readResults(run.dir), batchId, isRetry);
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
  const { tableLines, widest } = await import("../output/table.ts");
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
