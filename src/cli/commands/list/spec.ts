import { BATCH_STATUSES } from "../../../contract/statuses.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking } from "../shared-options.ts";

export const list: CommandSpec = {
  name: "list",
  summary: "list your batches, newest first; in a pipe, fields separated by tabs",
  options: [
    {
      flags: "--status <status>",
      description: "only batches with this status, such as running",
      choices: BATCH_STATUSES,
    },
    { flags: "--name <text>", description: "only batches whose name contains this text" },
    {
      flags: "--downloaded [yes|no]",
      description: "only batches that were downloaded (yes) or were not (no)",
      choices: ["yes", "no"],
    },
    {
      flags: "--from <time>",
      description: "only batches created since 2030-01-31, 2030-01-31T18:00:00Z, or in the last 24h",
    },
    { flags: "--to <time>", description: "only batches created until then; the same forms" },
    { flags: "--limit <n>", description: "at most this many batches", default: "20" },
    { flags: "--all", description: "list every batch" },
  ],
  examples: [
    "imgbatch list --status running",
    "imgbatch list --all --from 7d | cut -f 1,2    # id and status",
  ],
  exits: asking,
  load: () => import("./run.ts"),
};
