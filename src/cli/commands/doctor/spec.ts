import type { CommandSpec } from "../../command-line/command-spec.ts";
import { storageOptions, upstreamOption } from "../shared-options.ts";

export const doctor: CommandSpec = {
  name: "doctor",
  summary: "check everything a run needs: keys, upstreams, service, clock, disk; costs nothing",
  options: [
    ...storageOptions,
    upstreamOption,
    { flags: "--agree", description: "agree to imgbatch.config.json of this directory as it is now" },
  ],
  examples: ["imgbatch doctor", "imgbatch doctor --upstream google", "imgbatch doctor --json"],
  notes: [
    "A stranger may have written imgbatch.config.json of a directory: before its addresses, programs, secret variables or storage are used, commands ask you to read it and to agree once. A changed file asks again; one that --config names needs no consent.",
  ],
  exits: ["auth", "money", "conflict", "temporary", "saving"],
  load: () => import("./run.ts"),
};
