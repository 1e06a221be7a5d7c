import type { CommandSpec } from "../../command-line/command-spec.ts";

export const doctor: CommandSpec = {
  name: "doctor",
  summary: "look for what may keep runs from working: key, service, clock, disk; costs nothing",
  examples: ["imgbatch doctor", "imgbatch doctor --json"],
  notes: [
    "When --base-url names the address of imgbatch.config.json, you agree to it: from then on, later commands send your key there.",
  ],
  exits: ["auth", "conflict", "temporary", "saving"],
  load: () => import("./run.ts"),
};
