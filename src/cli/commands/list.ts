import type { Batch } from "../../client/answers.ts";
import { type BatchFilter, listBatches } from "../../client/batches.ts";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { BATCH_STATUSES } from "../../contract/statuses.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { microsToDecimal } from "../../kernel/money.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { withService } from "../connect/connect.ts";
import * as option from "../options.ts";
import { batchCost, recordLine, stoppedText } from "../output/batches.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import type { Column } from "../output/table.ts";
import { asking } from "./shared-options.ts";

const MOST = 1_000_000;

const options = {
  status: option.choice({
    flags: "--status <status>",
    description: "only batches with this status, such as running",
    choices: BATCH_STATUSES,
  }),
  name: option.text({ flags: "--name <text>", description: "only batches whose name contains this text" }),
  downloaded: option.choice({
    flags: "--downloaded [yes|no]",
    description: "only batches that were downloaded (yes) or were not (no)",
    choices: ["yes", "no"],
    preset: "yes",
  }),
  from: option.instant({
    flags: "--from <time>",
    description: "only batches created since 2030-01-31, 2030-01-31T18:00:00Z, or in the last 24h",
  }),
  to: option.instant({
    flags: "--to <time>",
    description: "only batches created until then; the same forms",
  }),
  limit: option.whole({
    flags: "--limit <n>",
    description: "at most this many batches",
    default: "20",
    min: 1,
    max: MOST,
  }),
  all: option.flag({ flags: "--all", description: "list every batch" }),
};
type Options = option.Values<typeof options>;

export const command = defineCommand({
  options,
  examples: [
    "imgbatch list --status running",
    "imgbatch list --all --from 7d | cut -f 1,2    # id and status",
  ],
  exits: asking,
  run,
});

/** `imgbatch list`: lists the key's batches, newest first. Prints a table on a terminal, else one record a line. */
function run(context: CommandContext<Options>): Promise<CommandResult> {
  const { options, results, signal, output, global, clock } = context;
  const filter = filterOf(options);
  const usual = results.isForPeople ? FIXED_LIMITS.batchPageDefault : null;
  const limit = options.all ? null : (options.limit ?? usual);
  return withService(context, { workers: false }, async ({ http }) => {
    const { batches, hasMore } = await listBatches(http, filter, limit, signal);
    if (hasMore) output.note(`there are more batches: add --all, or a --limit above ${limit}`);
    if (batches.length === 0) output.note("no batches");
    noteStopped(batches, context);
    return {
      json: { batches: batches.map((batch) => batch.raw), has_more: hasMore },
      lines: results.isForPeople ? await table(batches, results.columns, clock.nowMs()) : batches.map(record),
      next: results.isForPeople ? nextStep(global, batches) : null,
    };
  });
}

const isStopped = ({ waiting }: Batch) => waiting?.code === "STOPPED";

/** Says how batches go on that nobody works on. */
function noteStopped(batches: readonly Batch[], { output, global }: CommandContext): void {
  const stopped = batches.filter(isStopped);
  const [first] = stopped;
  if (first === undefined) return;
  const which = stopped.length === 1 ? `${first.id} is` : `${stopped.length} batches are`;
  output.note(`${which} ${stoppedText(first, global)}`);
}

/** The next step is for people only; a program wants just the list. */
function nextStep(where: Whereabouts, batches: readonly Batch[]): string {
  if (batches.some((batch) => !batch.isDone)) return nextCommand(where, "watch");
  const made = batches.find((batch) => batch.successCount > 0 && batch.status !== "output_deleted");
  if (made !== undefined) return nextCommand(where, "download", made.id);
  return batches[0] === undefined
    ? `to make one: ${nextCommand(where, "submit", "prompts.jsonl")}`
    : `to list the images of the newest: ${nextCommand(where, "items", batches[0].id)}`;
}

function filterOf({ status, name, downloaded, from, to }: Options): BatchFilter {
  const isDownloaded = downloaded === undefined ? undefined : downloaded === "yes" ? "true" : "false";
  return { status, task_name: name, downloaded: isDownloaded, from, to };
}

const imagesOf = ({ hasCounts, successCount, itemCount }: Batch) =>
  `${hasCounts ? successCount : "?"}/${itemCount ?? "?"}`;
/** The columns are id, status, successes, failures, images, cost in dollars, time of creation, and name. Drawings cost none. */
function record(batch: Batch): string {
  const { id, status, successCount, failCount, hasCounts, itemCount, createdAtMs, name } = batch;
  const cost = batch.isPlay ? 0 : (batch.actualCostMicroUsd ?? batch.estimatedCostMicroUsd);
  const created = createdAtMs === null ? "" : new Date(createdAtMs).toISOString().replace(".000Z", "Z");
  const usd = cost === null ? "" : microsToDecimal(cost);
  const counts = hasCounts ? [successCount, failCount] : ["", ""];
  return recordLine([id, status, ...counts, itemCount ?? "", usd, created, name ?? ""]);
}

/** Columns that are shown where the terminal is wide enough, with this much space left for the name. */
const NAME_WIDTH = 14;
const MORE_COLUMNS: readonly Column<Batch>[] = [
  {
    title: "FAILED",
    align: "right",
    of: ({ hasCounts, failCount }) => (hasCounts ? String(failCount) : "?"),
  },
  {
    title: "COST",
    align: "right",
    of: batchCost,
  },
  { title: "DOWNLOADED", of: ({ raw }) => (typeof raw.downloaded_at === "number" ? "yes" : "") },
];

async function table(batches: readonly Batch[], columns: number, nowMs: number): Promise<string[]> {
  if (batches.length === 0) return [];
  // Measuring text takes longer to load than the rest of the command, and records need none.
  const { tableLines, widest } = await import("../output/table.ts");
  const layout: Column<Batch>[] = [
    { title: "ID", of: ({ id }) => id },
    { title: "STATUS", of: (batch) => (isStopped(batch) ? "stopped" : batch.status) },
    { title: "IMAGES", align: "right", of: imagesOf },
    { title: "AGE", align: "right", of: (batch) => ageOf(batch, nowMs) },
  ];
  const isJob = ({ source }: Batch) => source !== null && source !== "batch";
  if (batches.some(isJob)) {
    layout.push({ title: "JOB", of: (batch) => (isJob(batch) ? (batch.source ?? "") : "") });
  }
  for (const column of MORE_COLUMNS) {
    const wider = [...layout, column];
    if (widest(tableLines(wider, batches)) + NAME_WIDTH <= columns) layout.push(column);
  }
  const left = columns - widest(tableLines(layout, batches)) - 2;
  const name: Column<Batch> = {
    title: "NAME",
    maxWidth: left,
    of: (batch) => batch.name ?? "",
  };
  return tableLines(left <= "NAME".length ? layout : [...layout, name], batches);
}

function ageOf({ createdAtMs }: Batch, nowMs: number): string {
  return createdAtMs === null ? "" : formatDuration(Math.max(0, nowMs - createdAtMs));
}
