import type { CommandSpec } from "../../command-line/command-spec.ts";
import type { OptionSpec } from "../../command-line/option-values.ts";
import { storageOptions } from "../shared-options.ts";
import { USAGE_GROUPS } from "./arguments.ts";

const accountOption: OptionSpec = {
  flags: "--account <name>",
  description: "only the movements of this account",
};
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
      load: () => import("./accounts/create.ts"),
    },
    {
      name: "list",
      summary: "list every account with its balance and the amount held for its batches",
      examples: ["imgbatch admin accounts list"],
      load: () => import("./accounts/list.ts"),
    },
    {
      name: "top-up",
      summary: "add money to an account",
      arguments: [accountName, { name: "<usd>", description: "the amount in US dollars, such as 25.50" }],
      examples: ["imgbatch admin accounts top-up team 25.50"],
      load: () => import("./accounts/top-up.ts"),
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
      load: () => import("./keys/create.ts"),
    },
    {
      name: "list",
      summary: "list every key with its account, group and state; never the key itself",
      examples: ["imgbatch admin keys list"],
      load: () => import("./keys/list.ts"),
    },
    {
      name: "disable",
      summary: "refuse a key from now on, also in a running service",
      arguments: [keyId],
      examples: ["imgbatch admin keys disable key_…"],
      load: async () => ({ run: (await import("./keys/set-disabled.ts")).disable }),
    },
    {
      name: "enable",
      summary: "accept a disabled key again",
      arguments: [keyId],
      examples: ["imgbatch admin keys enable key_…"],
      load: async () => ({ run: (await import("./keys/set-disabled.ts")).enable }),
    },
  ],
};

/** Lets every command below name a shared database and a bucket in place of the data directory. */
function withStorage(spec: CommandSpec): CommandSpec {
  if (spec.commands) return { ...spec, commands: spec.commands.map(withStorage) };
  return { ...spec, options: [...(spec.options ?? []), ...storageOptions] };
}

/** `imgbatch admin`: the commands that work on a data directory directly. A service may run on it meanwhile. */
export const admin: CommandSpec = withStorage({
  name: "admin",
  summary: "manage the accounts, keys and money of a data directory",
  examples: [
    "imgbatch admin check",
    "imgbatch admin keys create --name ci",
    "imgbatch admin ledger --data ./data",
  ],
  commands: [
    accounts,
    keys,
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
      load: () => import("./ledger.ts"),
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
      notes: ["Usage is summed in steps of 5 minutes: --from and --to take in the whole of a step."],
      load: () => import("./usage.ts"),
    },
    {
      name: "check",
      summary: "verify that money, batches and files agree",
      examples: ["imgbatch admin check --data ./data"],
      exits: ["someFailed"],
      load: () => import("./check.ts"),
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
      load: () => import("./move.ts"),
    },
  ],
});
