import { loadConfig } from "../../config/load.ts";
import type { Config } from "../../config/schema.ts";
import { isProceduralOnly } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { toSeconds } from "../../kernel/durations.ts";
import { amountText, formatUsd, microsToNumber, parseUsd } from "../../kernel/money.ts";
import { hasUnstorableText } from "../../kernel/text.ts";
import { type Account, DEFAULT_ACCOUNT, type Key } from "../../service/admin.ts";
import type { CommandContext, CommandResult, CommandSpec } from "../command.ts";
import { configChoice } from "../connect/service-config.ts";
import { textOption, timeSpan } from "../options.ts";
import { nextCommand } from "../output/next-step.ts";
import { type Column, tableLines } from "../output/table.ts";
import { formatMoment, oneOf, unknownAccount, withAdmin, wrongArgument } from "./admin-data.ts";

const keyId = { name: "<id>", description: "the id of a key, as `imgbatch admin keys list` shows it" };
const accountName = { name: "<name>", description: "the name of the account" };

const accounts: CommandSpec = {
  name: "accounts",
  summary: "manage the accounts that pay for images",
  examples: ["imgbatch admin accounts list", "imgbatch admin accounts create team --balance 50"],
  commands: [
    {
      name: "create",
      summary: "open an account; creates the data directory if it is missing",
      arguments: [accountName],
      options: [
        { flags: "--balance <usd>", description: "the opening balance, such as 25.50", default: "0" },
      ],
      examples: ["imgbatch admin accounts create team --balance 50"],
      run: createAccount,
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

const keys: CommandSpec = {
  name: "keys",
  summary: "manage API keys",
  examples: ["imgbatch admin keys list", "imgbatch admin keys create --name ci"],
  commands: [
    {
      name: "create",
      summary: "create a key and print it, only this once; creates the data directory if it is missing",
      options: [
        { flags: "--name <name>", description: "a name for the key", default: "unnamed" },
        {
          flags: "--account <name>",
          description: "the account that the key spends from",
          default: "default",
        },
        { flags: "--group <name>", description: "a group of the configuration", default: "default" },
        {
          flags: "--expires <date>",
          description: "YYYY-MM-DD for the end of that day (UTC), or a time such as 2030-01-31T18:00:00Z",
        },
      ],
      examples: ["imgbatch admin keys create --name ci --account team --expires 2030-12-31"],
      run: createKey,
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

export const accountCommands = [accounts, keys];

/** `imgbatch admin accounts create`: opens an account. The data directory may be new. */
async function createAccount(context: CommandContext): Promise<CommandResult> {
  const name = readName("<name>", context.arguments[0] ?? "");
  const balanceMicroUsd = readUsd("--balance", textOption(context.options, "balance") ?? "0", 0);
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
async function createKey(context: CommandContext): Promise<CommandResult> {
  const { options, global, clock, output } = context;
  const config = loadConfig(configChoice(context));
  const accountName = textOption(options, "account") ?? DEFAULT_ACCOUNT;
  const facts = {
    name: readName("--name", textOption(options, "name") ?? "unnamed"),
    accountName,
    group: readGroup(textOption(options, "group") ?? "default", config),
    expiresAtMs: readExpiry(textOption(options, "expires"), clock.nowMs()),
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
  const ms = timeSpan(text)?.endMs ?? null;
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
