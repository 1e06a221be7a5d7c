// The table of `imgbatch admin`, and under it each of its commands: all of them open the same data directory and print its rows.

import { resolve } from "node:path";
import { loadConfig } from "../../config/load.ts";
import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import type { Config } from "../../config/schema.ts";
import { isProceduralOnly } from "../../contract/data-directory.ts";
import { EXIT_CODES, ImgbatchError } from "../../contract/errors.ts";
import { readEnvironment } from "../../environment.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { amountText, formatUsd, microsToNumber, parseUsd } from "../../kernel/money.ts";
import { counted, formatBytes, hasUnstorableText } from "../../kernel/text.ts";
import {
  type Account,
  type Admin,
  DEFAULT_ACCOUNT,
  type Key,
  type LedgerLine,
  type UsageLine,
} from "../../service/admin.ts";
import { backupStorage } from "../../service/storage/backup.ts";
import { moveStorage } from "../../service/storage/open-storage.ts";
import {
  type CommandContext,
  type CommandDetails,
  type CommandResult,
  type CommandSpec,
  defineCommand,
} from "../command.ts";
import { configChoice, storageOf } from "../connect/service-config.ts";
import * as option from "../options.ts";
import { nextCommand, type Whereabouts } from "../output/next-step.ts";
import { type Column, tableLines } from "../output/table.ts";
import { resolveTarget } from "../targets.ts";
import { costDifference, formatMoment, withAdmin, wrongArgument } from "./admin-data.ts";
import { storageOptions } from "./shared-options.ts";

const keyId = { name: "<id>", description: "the id of a key, as `imgbatch admin keys list` shows it" };
const accountName = { name: "<name>", description: "the name of the account" };

const newAccountOptions = {
  balance: option.text({
    flags: "--balance <usd>",
    description: "the opening balance, such as 25.50",
    default: "0",
  }),
};

const accounts: CommandSpec = {
  name: "accounts",
  summary: "manage the accounts that pay for images",
  examples: ["imgbatch admin accounts list", "imgbatch admin accounts create team --balance 50"],
  commands: [
    {
      name: "create",
      summary: "open an account; creates the data directory if it is missing",
      arguments: [accountName],
      ...defineCommand({
        options: newAccountOptions,
        examples: ["imgbatch admin accounts create team --balance 50"],
        run: createAccount,
      }),
    },
    {
      name: "list",
      summary: "list every account with its balance and the amount held for its batches",
      examples: ["imgbatch admin accounts list"],
      run: listAccounts,
    },
    {
      name: "top-up",
      summary: "add money to an account",
      arguments: [accountName, { name: "<usd>", description: "the amount in US dollars, such as 25.50" }],
      examples: ["imgbatch admin accounts top-up team 25.50"],
      run: topUp,
    },
  ],
};

const newKeyOptions = {
  name: option.text({ flags: "--name <name>", description: "a name for the key", default: "unnamed" }),
  account: option.text({
    flags: "--account <name>",
    description: "the account that the key spends from",
    default: "default",
  }),
  group: option.text({
    flags: "--group <name>",
    description: "a group of the configuration",
    default: "default",
  }),
  expires: option.text({
    flags: "--expires <date>",
    description: "YYYY-MM-DD for the end of that day (UTC), or a time such as 2030-01-31T18:00:00Z",
  }),
};

const keys: CommandSpec = {
  name: "keys",
  summary: "manage API keys",
  examples: ["imgbatch admin keys list", "imgbatch admin keys create --name ci"],
  commands: [
    {
      name: "create",
      summary: "create a key and print it, only this once; creates the data directory if it is missing",
      ...defineCommand({
        options: newKeyOptions,
        examples: ["imgbatch admin keys create --name ci --account team --expires 2030-12-31"],
        run: createKey,
      }),
    },
    {
      name: "list",
      summary: "list every key with its account, group and state; never the key itself",
      examples: ["imgbatch admin keys list"],
      run: listKeys,
    },
    {
      name: "disable",
      summary: "refuse a key from now on, also in a running service",
      arguments: [keyId],
      examples: ["imgbatch admin keys disable key_…"],
      run: (context) => setDisabled(context, true),
    },
    {
      name: "enable",
      summary: "accept a disabled key again",
      arguments: [keyId],
      examples: ["imgbatch admin keys enable key_…"],
      run: (context) => setDisabled(context, false),
    },
  ],
};

const accountCommands = [accounts, keys];

/** `imgbatch admin accounts create`: opens an account. The data directory may be new. */
async function createAccount(
  context: CommandContext<option.Values<typeof newAccountOptions>>,
): Promise<CommandResult> {
  const name = readName("<name>", context.arguments[0] ?? "");
  const balanceMicroUsd = readUsd("--balance", context.options.balance ?? "0", 0);
  return withAdmin(context, { mayCreate: true }, async (admin) => {
    const account = await admin.createAccount({ name, balanceMicroUsd });
    if (!account) throw wrongArgument("<name>", name, "an account has this name already; write another");
    return { json: accountView(account), lines: accountLines([account]) };
  });
}

/** `imgbatch admin accounts list`: every account, oldest first. */
function listAccounts(context: CommandContext): Promise<CommandResult> {
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const accounts = await admin.accounts();
    // Scripts rely on the bare list: the other lists have a name in an object.
    return { json: accounts.map(accountView), lines: accountLines(accounts) };
  });
}

/**
 * `imgbatch admin accounts top-up`: adds money to an account. Running it again adds the amount again. With an upstream in
 * the configuration, or once an upstream was asked for, the money is real: it goes to the real account of an account with
 * play money.
 */
async function topUp(context: CommandContext): Promise<CommandResult> {
  const [name = "", usd = ""] = context.arguments;
  const amountMicroUsd = readUsd("<usd>", usd, 1);
  const { global, output } = context;
  const isReal = !isProceduralOnly(loadConfig(configChoice(context)));
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const account = await admin.topUp(name, amountMicroUsd, { isReal });
    if (!account) throw await unknownAccount("<name>", name, admin, global);
    if ("mostMicroUsd" in account) {
      const advice = `the account ${name} can take at most ${formatUsd(account.mostMicroUsd)} more`;
      throw wrongArgument("<usd>", usd, advice);
    }
    if (account.name !== name)
      output.note(`${name} has play money, which buys drawings only: ${account.name} pays for upstreams`);
    return { json: accountView(account), lines: accountLines([account]) };
  });
}

const NAMES_SHOWN = 10;

/** The advice for an unknown name: it lists the known ones. */
function oneOf(names: readonly string[]): string {
  const more = names.length > NAMES_SHOWN ? ", …" : "";
  return `write one of ${names.slice(0, NAMES_SHOWN).join(", ")}${more}`;
}

/** The error for a name that no account has. */
async function unknownAccount(
  argument: string,
  name: string,
  admin: Admin,
  where: Whereabouts,
): Promise<ImgbatchError> {
  const names = (await admin.accounts()).map((account) => account.name);
  const advice =
    names.length > 0 ? oneOf(names) : `make it: ${nextCommand(where, "admin", "accounts", "create", name)}`;
  return wrongArgument(argument, name, `no account has this name; ${advice}`);
}

const NAME_CHARS = 100;

/** Reads an amount of at least `minMicroUsd`, and returns micro-dollars. Throws `USAGE`. */
function readUsd(argument: string, text: string, minMicroUsd: 0 | 1): number {
  const amount = parseUsd(text);
  if (amount !== null && amount >= minMicroUsd) return amount;
  const range = `from ${formatUsd(minMicroUsd)} to ${formatUsd(Number.MAX_SAFE_INTEGER)}`.replaceAll("$", "");
  const advice = `write an amount in US dollars ${range}, with at most 6 decimals, such as 5 or 0.25`;
  throw wrongArgument(argument, text, advice);
}

/** Reads the name of a new account or key. Throws `USAGE`. */
function readName(argument: string, text: string): string {
  const length = Array.from(text).length;
  const isPlain = !/\p{Cc}|^\s|\s$/u.test(text) && !hasUnstorableText(text);
  if (length > 0 && length <= NAME_CHARS && isPlain) return text;
  const advice = `write 1 to ${NAME_CHARS} characters, with no control characters and no space at the ends`;
  throw wrongArgument(argument, text, advice);
}

/** An account in `--json`. `balance` is the amount that can be spent now, without the held amount. */
function accountView({ name, balanceMicroUsd, heldMicroUsd, isPlay, createdAtMs }: Account): object {
  return {
    name,
    balance: microsToNumber(balanceMicroUsd),
    held: microsToNumber(heldMicroUsd),
    ...(isPlay ? { play: true, play_money: true } : {}),
    created_at: toSeconds(createdAtMs),
  };
}

const ACCOUNT_COLUMNS: readonly Column<Account>[] = [
  { title: "name", of: ({ name }) => name },
  {
    title: "balance",
    align: "right",
    of: ({ balanceMicroUsd: micros, isPlay }) => amountText({ micros, isPlay }),
  },
  { title: "held", align: "right", of: ({ heldMicroUsd: micros, isPlay }) => amountText({ micros, isPlay }) },
  { title: "created", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
];

function accountLines(accounts: readonly Account[]): string[] {
  return tableLines(ACCOUNT_COLUMNS, accounts);
}

/**
 * `imgbatch admin keys create`: creates a key and shows it, only this once. For the default account, the data directory
 * may be new.
 */
async function createKey(
  context: CommandContext<option.Values<typeof newKeyOptions>>,
): Promise<CommandResult> {
  const { options, global, clock, output } = context;
  const config = loadConfig(configChoice(context));
  const { account: accountName = DEFAULT_ACCOUNT } = options;
  const facts = {
    name: readName("--name", options.name ?? "unnamed"),
    accountName,
    group: readGroup(options.group ?? "default", config),
    expiresAtMs: readExpiry(options.expires, clock.nowMs()),
    isPlayMoney: isProceduralOnly(config),
  };
  return withAdmin(context, { mayCreate: accountName === DEFAULT_ACCOUNT }, async (admin) => {
    const made = await admin.createKey(facts);
    if (!made) throw await unknownAccount("--account", accountName, admin, global);
    const { id, name, ...rest } = keyFacts(made);
    if (!global.json) output.note(`key ${id}: save it now; it is not shown again`);
    return { json: { id, name, key: made.key, ...rest }, lines: [made.key] };
  });
}

function readGroup(name: string, { groups }: Config): string {
  if (groups.some((group) => group.name === name)) return name;
  const advice = `no group of the configuration has this name; ${oneOf(groups.map((group) => group.name))}`;
  throw wrongArgument("--group", name, advice);
}

function readExpiry(text: string | undefined, nowMs: number): number | null {
  if (text === undefined) return null;
  const ms = option.timeSpan(text)?.endMs ?? null;
  const shape = "write a day such as 2030-01-31 (to its end, UTC) or a time such as 2030-01-31T18:00:00Z";
  if (ms === null) throw wrongArgument("--expires", text, shape);
  if (ms <= nowMs)
    throw wrongArgument("--expires", text, `this time is in the past; ${shape}, in the future`);
  return ms;
}

/** `imgbatch admin keys list`: every key, oldest first. */
function listKeys(context: CommandContext): Promise<CommandResult> {
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const keys = await admin.keys();
    return { json: { keys: keys.map(keyView) }, lines: keyLines(keys) };
  });
}

/** `imgbatch admin keys disable` and `enable`: for the next request on. Repeating it is no error. */
async function setDisabled(context: CommandContext, isDisabled: boolean): Promise<CommandResult> {
  const [id = ""] = context.arguments;
  const seeList = `${nextCommand(context.global, "admin", "keys", "list")} shows the ids`;
  // A whole key must not be repeated in a message.
  if (id.startsWith("imgb_")) {
    throw new ImgbatchError("USAGE", `<id>: this is a key, not its id; ${seeList}.`, { param: "<id>" });
  }
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const key = await admin.setKeyDisabled(id, isDisabled);
    if (!key) throw wrongArgument("<id>", id, `no key has this id; ${seeList}`);
    if (key.state === "expired") context.output.note("the key has expired, so the service still refuses it");
    return { json: keyView(key), lines: keyLines([key]) };
  });
}

/** The facts of a key that `--json` always shows. */
function keyFacts({ id, name, accountName, group, createdAtMs, expiresAtMs }: Key) {
  return {
    id,
    name,
    account: accountName,
    group,
    created_at: toSeconds(createdAtMs),
    expires_at: expiresAtMs === null ? null : toSeconds(expiresAtMs),
  };
}

/** An existing key in `--json`. Only its first characters are stored, so they identify it. */
function keyView(key: Key): object {
  return { ...keyFacts(key), prefix: key.prefix, state: key.state };
}

const KEY_COLUMNS: readonly Column<Key>[] = [
  { title: "id", of: ({ id }) => id },
  { title: "name", of: ({ name }) => name },
  { title: "prefix", of: ({ prefix }) => prefix },
  { title: "account", of: ({ accountName }) => accountName },
  { title: "group", of: ({ group }) => group },
  { title: "state", of: ({ state }) => state },
  { title: "created", of: ({ createdAtMs }) => formatMoment(createdAtMs) },
  { title: "expires", of: ({ expiresAtMs }) => (expiresAtMs === null ? "never" : formatMoment(expiresAtMs)) },
];

function keyLines(keys: readonly Key[]): string[] {
  return tableLines(KEY_COLUMNS, keys);
}

const ledgerOptions = {
  account: option.text({ flags: "--account <name>", description: "only the movements of this account" }),
  batch: option.text({
    flags: "--batch <id|dir>",
    description: "only the movements of this batch, or of the batches of a run",
  }),
};

const usageOptions = {
  by: option.choice({
    flags: "--by <group>",
    description: "day (UTC), model or provider",
    default: "day",
    choices: ["day", "model", "provider"],
  }),
  from: option.instant({
    flags: "--from <time>",
    description: "a day (UTC), a time such as 2030-01-31T18:00:00Z, or how long ago such as 24h",
  }),
  to: option.instant({ flags: "--to <time>", description: "the same; a day counts to its end" }),
};

const checkOptions = {
  repair: option.flag({
    flags: "--repair",
    description:
      "first correct the counts of batches, and remove files that no row names and that are older than an hour",
  }),
};

const pruneOptions = {
  olderMs: option.positiveDuration({
    flags: "--older <duration>",
    description: "only of batches that ended this long ago",
    default: "30d",
  }),
  dryRun: option.flag({ flags: "--dry-run", description: "only say what would be deleted" }),
};

/** Lets every command below name a shared database and a bucket in place of the data directory. */
function withStorage<Spec extends CommandDetails>(spec: Spec): Spec {
  if (spec.commands) return { ...spec, commands: spec.commands.map((each) => withStorage(each)) };
  return { ...spec, options: { ...spec.options, ...storageOptions } };
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
      ...defineCommand({
        options: ledgerOptions,
        examples: ["imgbatch admin ledger --batch prompts-images"],
        run: ledger,
      }),
    },
    {
      name: "usage",
      summary: "sum up what providers were asked, what callers were billed, and what upstreams report",
      ...defineCommand({
        options: usageOptions,
        examples: [
          "imgbatch admin usage --from 7d",
          "imgbatch admin usage --by provider --from 2030-01-01 --to 2030-01-31",
        ],
        notes: [
          "Usage is summed in steps of 5 minutes: --from and --to take in the whole of a step.",
          "`billed` is the price that callers agreed to. `upstream cost` is the bill of the upstream: the dollars that it reports, else its tokens at the vendor's rates. `not reported` is the list price of the images for which neither is known.",
        ],
        run: usage,
      }),
    },
    {
      name: "check",
      summary: "verify that money, batches and files agree",
      ...defineCommand({
        options: checkOptions,
        examples: ["imgbatch admin check --data ./data", "imgbatch admin check --repair"],
        exits: ["someFailed"],
        run: check,
      }),
    },
    {
      name: "prune",
      summary:
        "delete the images of batches that ended a while ago; records, and what runs have downloaded, stay",
      ...defineCommand({
        options: pruneOptions,
        examples: ["imgbatch admin prune --dry-run", "imgbatch admin prune --older 14d"],
        exits: ["someFailed"],
        run: pruneImages,
      }),
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
function ledger(context: CommandContext<option.Values<typeof ledgerOptions>>): Promise<CommandResult> {
  const { account: accountName, batch } = context.options;
  return withAdmin(context, { mayCreate: false }, async (admin) => {
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
function usage(context: CommandContext<option.Values<typeof usageOptions>>): Promise<CommandResult> {
  const { by = "day" } = context.options;
  const [from, to] = [context.options.from, context.options.to].map((text) => option.timeSpan(text ?? ""));
  return withAdmin(context, { mayCreate: false }, async (admin) => {
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
function check(context: CommandContext<option.Values<typeof checkOptions>>): Promise<CommandResult> {
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
function pruneImages(context: CommandContext<option.Values<typeof pruneOptions>>): Promise<CommandResult> {
  const { output } = context;
  const { olderMs = PRUNED_AFTER_MS, dryRun: isDryRun } = context.options;
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
