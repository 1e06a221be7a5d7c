import type { CommandSpec } from "../../command-line/command-spec.ts";
import { storageOptions, upstreamOption } from "../shared-options.ts";

export const doctor: CommandSpec = {
  name: "doctor",
  summary: "check everything a run needs: keys, upstreams, service, clock, disk; costs nothing",
  options: [...storageOptions, upstreamOption],
  examples: ["imgbatch doctor", "imgbatch doctor --upstream google", "imgbatch doctor --json"],
  notes: [
    "If --base-url is the address in imgbatch.config.json, you agree to that address: later commands send your key there.",
  ],
  exits: ["auth", "money", "conflict", "temporary", "saving"],
  load: () => import("./run.ts"),
};
