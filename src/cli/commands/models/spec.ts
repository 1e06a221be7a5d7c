import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking } from "../shared-options.ts";

export const models: CommandSpec = {
  name: "models",
  summary: "the models that this key can make batches with, and what an image costs",
  options: [{ flags: "--realtime", description: "the models of `imgbatch generate` instead" }],
  examples: ["imgbatch models --json", "imgbatch models --realtime"],
  exits: asking,
  load: () => import("./run.ts"),
};
