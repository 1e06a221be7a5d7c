import type { CommandSpec } from "../../command-line/command-spec.ts";
import { storageOptions, upstreamOption } from "../shared-options.ts";

export const providers: CommandSpec = {
  name: "providers",
  summary: "show the configured providers of a data directory: state, until when, why, counts, spend",
  options: [
    {
      flags: "--probe",
      description:
        "ask each upstream with a request that costs nothing; one that works is used again at once",
    },
    ...storageOptions,
    upstreamOption,
  ],
  examples: ["imgbatch providers", "imgbatch providers --probe", "imgbatch providers --json"],
  notes: [
    "Works on the data directory (--data), also while a service runs on it. Use the configuration of that service.",
  ],
  exits: ["auth", "money", "temporary", "saving"],
  load: () => import("./run.ts"),
};
