import type { CommandSpec } from "../command.ts";
import { asking, askingOf, target, targets } from "./shared.ts";

export const status: CommandSpec = {
  name: "status",
  summary: "one look at batches; never waits",
  arguments: [targets],
  examples: ["imgbatch status prompts-images", "imgbatch status imgbatch_… --json"],
  exits: askingOf,
  load: () => import("../commands/status.ts"),
};

export const list: CommandSpec = {
  name: "list",
  summary: "your batches, newest first; in a pipe, fields between tabs",
  options: [
    { flags: "--status <status>", description: "only those in this status, such as running" },
    { flags: "--name <text>", description: "only those with this in their name" },
    { flags: "--downloaded [yes|no]", description: "only those that were downloaded, or were not" },
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
  load: () => import("../commands/list.ts"),
};

export const items: CommandSpec = {
  name: "items",
  summary: "what became of each image of a batch or a run",
  arguments: [target],
  options: [
    { flags: "--status <status>", description: "only pending, success or failed ones" },
    { flags: "--all", description: "all of them, not the first 100 only" },
  ],
  examples: ["imgbatch items prompts-images --status failed"],
  exits: askingOf,
  load: () => import("../commands/items.ts"),
};

export const cancel: CommandSpec = {
  name: "cancel",
  summary: "stop a batch, or all batches of a run; finished images stay and are paid",
  arguments: [target],
  examples: ["imgbatch cancel prompts-images"],
  exits: askingOf,
  load: () => import("../commands/cancel.ts"),
};

export const remove: CommandSpec = {
  name: "delete",
  summary: "delete from the service what an ended batch left there; files here stay",
  arguments: [target],
  options: [
    { flags: "--outputs", description: "the image files; the record stays" },
    { flags: "--record", description: "the entry in your list; with --outputs, both" },
  ],
  examples: ["imgbatch delete prompts-images --outputs"],
  exits: askingOf,
  load: () => import("../commands/delete.ts"),
};

export const models: CommandSpec = {
  name: "models",
  summary: "the models that this key can make batches with, and what an image costs",
  options: [{ flags: "--realtime", description: "the models of `imgbatch generate` instead" }],
  examples: ["imgbatch models --json", "imgbatch models --realtime"],
  exits: asking,
  load: () => import("../commands/models.ts"),
};
