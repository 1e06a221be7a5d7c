import { BATCH_STATUSES } from "../../../contract/statuses.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking } from "../shared-options.ts";

export const list: CommandSpec = {
  name: "list",
  summary: "your batches, newest first; in a pipe, fields between tabs",
  options: [
    {
      flags: "--status <status>",
      description: "only those in this status, such as running",
      choices: BATCH_STATUSES,
    },
    { flags: "--name <text>", description: "only those with this in their name" },
    {
      flags: "--downloaded [yes|no]",
      description: "only those that were downloaded, or were not",
      choices: ["yes", "no"],
    },
    { flags: "--from <time>", description: "made since: 2030-01-31, 2030-01-31T18:00:00Z, or 24h for ago" },
    { flags: "--to <time>", description: "made until, in the same forms" },
    { flags: "--limit <n>", description: "at most so many", default: "20" },
    { flags: "--all", description: "all of them" },
  ],
  examples: [
    "imgbatch list --status running",
    "imgbatch list --all --from 7d | cut -f 1,2    # id and status",
  ],
  exits: asking,
  load: () => import("./run.ts"),
};
