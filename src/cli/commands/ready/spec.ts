import type { CommandSpec } from "../../command-line/command-spec.ts";

export const ready: CommandSpec = {
  name: "ready",
  summary: "check whether the service is ready and accepts the key",
  options: [
    { flags: "--wait", description: "wait until the service is ready" },
    { flags: "--timeout <time>", description: "with --wait: stop waiting after this time", default: "30s" },
  ],
  examples: ["imgbatch ready --wait --timeout 2m && imgbatch submit prompts.jsonl"],
  exits: ["auth", "temporary", "gone", "timeout", "interrupted", "terminated"],
  load: () => import("./run.ts"),
};
