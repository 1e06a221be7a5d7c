import { resolve } from "node:path";
import { loadConfig } from "../../config/load.ts";
import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { amountText, formatUsd, microsToNumber } from "../../kernel/money.ts";
import { counted, formatBytes } from "../../kernel/text.ts";
import type { Admin, LedgerLine, UsageLine } from "../../service/admin.ts";
import { backupStorage } from "../../service/storage/backup.ts";
import { moveStorage } from "../../service/storage/move.ts";
import type { CommandContext, CommandDetails, CommandResult } from "../command.ts";
import { configChoice, storageOf } from "../connect/service-config.ts";
import {
  choiceOption,
  flagOption,
  instantOption,
  type OptionSpec,
  positiveDurationOption,
  textOption,
  timeSpan,
} from "../options.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import { type Column, tableLines } from "../output/table.ts";
import { resolveTarget } from "../targets.ts";
import { accountCommands } from "./admin-accounts.ts";
import { costDifference, formatMoment, unknownAccount, withAdmin, wrongArgument } from "./admin-data.ts";
import { storageOptions } from "./shared-options.ts";

const accountOption: OptionSpec = {
  flags: "--account <name>",
  description: "only the movements of this account",
};
/** The groups of `admin usage`. */
const USAGE_GROUPS = ["day", "model", "provider"] as const;

/** Lets every command below name a shared database and a bucket in place of the data directory. */
function withStorage<Spec extends CommandDetails>(spec: Spec): Spec {
  if (spec.commands) return { ...spec, commands: spec.commands.map((each) => withStorage(each)) };
  return { ...spec, options: [...(spec.options ?? []), ...storageOptions] };
}

/** `imgbatch admin`: the commands that work on a data directory directly. A service may run on it meanwhile. */
export const command: CommandDetails = withStorage({
  examples: [
    "imgbatch admin check",
    "imgbatch admin keys create --name ci",
    "imgbatch admin ledger --data ./data",
  ],
  commands: [
    ...accountCommands,
    {
      name: "ledger",
      summary: "list every movement of money, oldest first, with the balance after it",
      options: [
        accountOption,
        {
          flags: "--batch <id|dir>",
          description: "only the movements of this batch, or of the batches of a run",
        },
      ],
      examples: ["imgbatch admin ledger --batch prompts-images"],
      run: ledger,
    },
    {
      name: "usage",
      summary: "sum up what providers were asked, what callers were billed, and what upstreams report",
      options: [
        {
          flags: "--by <group>",
          description: "day (UTC), model or provider",
          default: "day",
          choices: USAGE_GROUPS,
        },
        {
          flags: "--from <time>",
          description: "a day (UTC), a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h",
        },
        { flags: "--to <time>", description: "the same; a day counts to its end" },
      ],
      examples: [
        "imgbatch admin usage --from 7d",
        "imgbatch admin usage --by provider --from 2030-01-01 --to 2030-01-31",
      ],
      notes: [
        "Usage is summed in steps of 5 minutes: --from and --to take in the whole of a step.",
        "`billed` is the price that callers agreed to. `upstream cost` is the bill of the upstream: the dollars that it reports, else its tokens at the vendor's rates. `not reported` is the list price of the images for which neither is known.",
      ],
      run: usage,
    },
    {
      name: "check",
      summary: "verify that money, batches and files agree",
      options: [
        {
          flags: "--repair",
          description:
            "first correct the counts of batches, and remove files that no row names and that are older than an hour",
        },
      ],
      examples: ["imgbatch admin check --data ./data", "imgbatch admin check --repair"],
      exits: ["someFailed"],
      run: check,
    },
    {
      name: "prune",
      summary:
        "delete the images of batches that ended a while ago; records, and what runs have downloaded, stay",
      options: [
        {
          flags: "--older <duration>",
          description: "only of batches that ended this long ago",
          default: "30d",
        },
        { flags: "--dry-run", description: "only say what would be deleted" },
      ],
      examples: ["imgbatch admin prune --dry-run", "imgbatch admin prune --older 14d"],
      exits: ["someFailed"],
      run: pruneImages,
    },
    {
      name: "backup",
      summary: "copy the database and the images to a directory, also while the service runs",
      arguments: [
        {
          name: "<dir>",
          description: "an empty directory, or an earlier backup, which is brought up to date",
        },
      ],
      examples: ["imgbatch admin backup /mnt/backup/images --data ./data"],
      exits: ["someFailed", "conflict", "saving"],
      notes: [
        "The directory is a data directory: `imgbatch admin check --data DIR` verifies it, and `imgbatch serve --data DIR` runs on it.",
      ],
      run: backup,
    },
    {
      name: "move",
      summary: "copy a data directory to PostgreSQL and S3, and compare both; the old data stays, unused",
      examples: [
        "imgbatch admin move --database postgres://db/main --blobs s3://pictures/main",
        "imgbatch admin move --blobs s3://pictures/main",
      ],
      exits: ["conflict", "temporary", "saving"],
      notes: ["An interrupted move goes on where it stopped: run the same command again."],
      run: move,
    },
  ],
});

/** `imgbatch admin ledger`: every movement of money, oldest first. */
function ledger(context: CommandContext): Promise<CommandResult> {
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const accountName = textOption(context.options, "account");
    const batch = textOption(context.options, "batch");
    const accountId =
      accountName === undefined ? undefined : await accountIdOf(admin, accountName, context.global);
    const batchIds = batch === undefined ? undefined : await batchIdsOf(admin, batch, context.cwd);
    const entries = await admin.ledger({ accountId, batchIds });
    return { json: { entries: entries.map(entryView) }, lines: tableLines(LEDGER_COLUMNS, entries) };
  });
}

async function accountIdOf(admin: Admin, name: string, where: Whereabouts): Promise<string> {
  const account = await admin.account(name);
  if (!account) throw await unknownAccount("--account", name, admin, where);
  return account.id;
}

async function batchIdsOf(admin: Admin, batch: string, cwd: string): Promise<string[]> {
  const { ids } = await resolveTarget(batch, cwd);
  for (const id of ids) {
    if (!(await admin.hasBatch(id)))
      throw wrongArgument("--batch", id, "no batch of this directory has this id");
  }
  return ids;
}

function entryView(entry: LedgerLine): object {
  return {
    seq: entry.seq,
    kind: entry.kind,
    amount: microsToNumber(entry.amountMicroUsd),
    balance_change: microsToNumber(entry.balanceChangeMicroUsd),
    held_change: microsToNumber(entry.heldChangeMicroUsd),
    account: entry.accountName,
    ...(entry.isPlay ? { play_money: true } : {}),
    batch_id: entry.batchId,
    request_id: entry.requestId,
    created_at: toSeconds(entry.createdAtMs),
  };
}

/** Without a sign of dollars for play money, which the name of the account tells. */
const shown = (micros: number, { isPlay }: LedgerLine) =>
  isPlay ? formatUsd(micros).replace("$", "") : formatUsd(micros);
const change = (micros: number, line: LedgerLine) => `${micros > 0 ? "+" : ""}${shown(micros, line)}`;

/** The batch or the real-time request that caused the entry. */
function whatFor({ batchId, kind, requestId }: LedgerLine): string {
  return batchId ?? (kind === "top_up" ? "" : requestId.slice(requestId.indexOf(":") + 1));
}

/** `balance` is the account's balance after the entry. Entries that a filter leaves out count too. */
const LEDGER_COLUMNS: readonly Column<LedgerLine>[] = [
  { title: "seq", align: "right", of: ({ seq }) => String(seq) },
  { title: "time", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
  {
    title: "account",
    of: ({ accountName, isPlay }) => (isPlay ? `${accountName} (play money)` : accountName),
  },
  { title: "kind", of: ({ kind }) => kind },
  { title: "change", align: "right", of: (line) => change(line.balanceChangeMicroUsd, line) },
  { title: "held", align: "right", of: (line) => change(line.heldChangeMicroUsd, line) },
  { title: "balance", align: "right", of: (line) => shown(line.balanceMicroUsd, line) },
  { title: "for", of: whatFor },
];

/** `imgbatch admin usage`: what providers were asked and what it cost, in groups. */
function usage(context: CommandContext): Promise<CommandResult> {
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const by = choiceOption(context.options, "by", USAGE_GROUPS) ?? "day";
    const from = readMoment(context, "from");
    const to = readMoment(context, "to");
    const { providers } = loadConfig(configChoice(context));
    const drawings = new Set(providers.flatMap(({ name, type }) => (type === "procedural" ? [name] : [])));
    const lines = await admin.usage({ by, fromMs: from?.firstMs, beforeMs: to?.endMs, drawings });
    const key: Column<UsageLine> = { title: by, of: (line) => line.key };
    return {
      json: { usage: lines.map((line) => usageView(by, line)) },
      lines: tableLines([key, ...USAGE_COLUMNS], lines),
    };
  });
}

/** Reads the time of an option: a whole day, or one moment. */
function readMoment({ options, clock }: CommandContext, name: "from" | "to") {
  const text = instantOption(options, name, clock.nowMs());
  return text === undefined ? null : timeSpan(text);
}

function usageView(by: string, line: UsageLine): object {
  return {
    [by]: line.key,
    requests: line.requests,
    images: line.images,
    errors: line.errors,
    may_be_paid_twice: line.maybePaidTwice,
    billed: microsToNumber(line.billedMicroUsd),
    ...(line.playMicroUsd === 0 ? {} : { billed_in_play_money: microsToNumber(line.playMicroUsd) }),
    upstream_cost: microsToNumber(line.costMicroUsd),
    not_reported: microsToNumber(line.unreportedMicroUsd),
    input_tokens: line.inputTokens,
    output_tokens: line.outputTokens,
  };
}

function billedText({ billedMicroUsd, playMicroUsd }: UsageLine): string {
  const real = billedMicroUsd - playMicroUsd;
  const play = playMicroUsd === 0 ? [] : [amountText({ micros: playMicroUsd, isPlay: true })];
  return [...(real > 0 || play.length === 0 ? [formatUsd(real)] : []), ...play].join(", ");
}

const numbers = (title: string, of: (line: UsageLine) => number | string): Column<UsageLine> => ({
  title,
  align: "right",
  of: (line) => String(of(line)),
});
const USAGE_COLUMNS: readonly Column<UsageLine>[] = [
  numbers("requests", ({ requests }) => requests),
  numbers("images", ({ images }) => images),
  numbers("errors", ({ errors }) => errors),
  numbers("paid twice?", ({ maybePaidTwice }) => maybePaidTwice),
  numbers("billed", billedText),
  numbers("upstream cost", ({ billedMicroUsd, playMicroUsd, unreportedMicroUsd, costMicroUsd }) =>
    costMicroUsd === 0
      ? "-"
      : formatUsd(costMicroUsd) +
        costDifference(billedMicroUsd - playMicroUsd - unreportedMicroUsd, costMicroUsd),
  ),
  numbers("not reported", ({ unreportedMicroUsd }) =>
    unreportedMicroUsd === 0 ? "-" : `about ${formatUsd(unreportedMicroUsd)}`,
  ),
  numbers("tokens in", ({ inputTokens }) => inputTokens),
  numbers("tokens out", ({ outputTokens }) => outputTokens),
];

/** `imgbatch admin check`: verifies every invariant of a data directory. A service may run on it meanwhile. */
function check(context: CommandContext): Promise<CommandResult> {
  return withAdmin(context, { mayCreate: false, readsImages: true }, async (admin, directory) => {
    const { clock, output } = context;
    const sinceMs = clock.nowMs();
    const repaired = context.options.repair ? await admin.repair() : null;
    const { accounts, batches, images, problems } = await admin
      .check((text) => output.progress(text, sinceMs))
      .finally(() => output.settle());
    const summary = [
      counted(accounts, "account"),
      counted(batches, "batch", "batches"),
      counted(images, "image"),
    ].join(", ");
    const isFine = problems.length === 0;
    return {
      exitCode: isFine ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
      json: {
        data: directory,
        accounts,
        batches,
        images,
        problems,
        ...(repaired ? { repaired: { files: repaired.files, batches: repaired.batchIds } } : {}),
      },
      lines: [
        ...(repaired?.batchIds.map((id) => `repaired: the counts of batch ${id}`) ?? []),
        ...(repaired && repaired.files > 0
          ? [`removed: ${counted(repaired.files, "file")} that no row names`]
          : []),
        ...(isFine
          ? [`ok: ${summary}`]
          : [...problems, `${counted(problems.length, "problem")} in ${summary}`]),
      ],
      next: isFine ? null : "stop the service and put a backup of the data directory in its place",
    };
  });
}

/** `admin prune` without `--older`: 30 days. */
const PRUNED_AFTER_MS = 30 * 86_400_000;

/** `imgbatch admin prune`: frees the disk of images that are old. A service may run on it meanwhile. */
function pruneImages(context: CommandContext): Promise<CommandResult> {
  const { options, output } = context;
  const olderMs = positiveDurationOption(options, "older") ?? PRUNED_AFTER_MS;
  const isDryRun = flagOption(options, "dryRun");
  return withAdmin(context, { mayCreate: false, readsImages: true }, async (admin, directory) => {
    const { batches, images, bytes, failures } = await admin.prune({ olderMs, isDryRun });
    for (const { batchId, error } of failures)
      output.warn(`${batchId} could not be deleted: ${String(error)}`);
    const amount = `${counted(images, "image")} of ${counted(batches, "batch", "batches")} (${formatBytes(bytes)})`;
    return {
      exitCode: failures.length === 0 ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
      json: { data: directory, dry_run: isDryRun, batches, images, bytes },
      lines: [isDryRun ? `would delete: ${amount}` : `deleted: ${amount}`],
      next: null,
    };
  });
}

/** `imgbatch admin backup`: copies a data directory to another one. A service may run on it meanwhile. */
async function backup(context: CommandContext): Promise<CommandResult> {
  const { global, cwd, output, clock, signal } = context;
  const [to = ""] = context.arguments;
  const { database, blobs } = storageOf(context, await loadUnlessDefault(configChoice(context)));
  if (database.kind !== "sqlite" || blobs.kind !== "files") {
    const message = "A shared database and a bucket are backed up with the tools of their servers.";
    const advice = "back up the database first, then the bucket: pg_dump, and the versions of the bucket";
    throw new ImgbatchError("USAGE", message, { advice });
  }
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const target = resolve(cwd, to);
  const sinceMs = clock.nowMs();
  const onProgress = (text: string) => output.progress(text, sinceMs);
  const report = await backupStorage({ directory, target, signal, onProgress }).finally(() =>
    output.settle(),
  );
  const { files, copied, bytes, atMs, missing } = report;
  for (const key of missing) output.warn(`missing in the data directory, and so in the backup: ${key}`);
  const news = copied === files ? "" : `, ${copied} of them new`;
  return {
    exitCode: missing.length === 0 ? EXIT_CODES.ok.code : EXIT_CODES.someFailed.code,
    json: {
      data: directory,
      backup: target,
      files,
      copied,
      copied_bytes: bytes,
      at: toSeconds(atMs),
      missing,
    },
    lines: [
      `${target}: ${counted(files, "file")}${news} (${formatBytes(bytes)} copied), as of ${formatMoment(atMs)}`,
    ],
    next: nextCommand({ ...global, data: target }, "admin", "check"),
  };
}

/** `imgbatch admin move`: copies a data directory to PostgreSQL and S3. No service may run on it meanwhile. */
async function move(context: CommandContext): Promise<CommandResult> {
  const { global, cwd, output, clock } = context;
  const config = await loadUnlessDefault(configChoice(context));
  const directory = dataDirectoryOf(global.data, readEnvironment(), cwd);
  const sinceMs = clock.nowMs();
  const onProgress = (text: string) => output.progress(text, sinceMs);
  const to = storageOf(context, config);
  const { problems, ...report } = await moveStorage({ directory, to, clock, onProgress }).finally(() =>
    output.settle(),
  );
  const { database, blobs, tables, rows, files, bytes } = report;
  for (const problem of problems) output.warn(`broken before, and moved as it is: ${problem}`);
  const result = {
    json: { data: directory, ...report, problems },
    lines: [
      ...(database === null
        ? []
        : [`${counted(rows, "row")} of ${counted(tables, "table")} copied to ${database}`]),
      `${counted(files, "file")} (${formatBytes(bytes)}) copied to ${blobs}`,
      `the old data stays in ${directory}, and no service uses it`,
    ],
  };
  const places = { ...(database === null ? {} : { database }), blobs };
  return { ...result, next: `write into the configuration: "storage": ${JSON.stringify(places)}` };
}
