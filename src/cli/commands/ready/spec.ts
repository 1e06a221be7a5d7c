import type { CommandSpec } from "../../command-line/command-spec.ts";

export const ready: CommandSpec = {
  name: "ready",
  summary: "ask whether the service is ready to work and takes the key",
  options: [
    { flags: "--wait", description: "until it is" },
    { flags: "--timeout <time>", description: "with --wait: give up after this time", default: "30s" },
  ],
  examples: ["imgbatch ready --wait --timeout 2m && imgbatch submit prompts.jsonl"],
  exits: ["auth", "temporary", "gone", "timeout", "interrupted", "terminated"],
  load: () => import("./run.ts"),
};
