import type { CommandSpec } from "../../command-line/command-spec.ts";
import { asking } from "../shared-options.ts";

export const models: CommandSpec = {
  name: "models",
  summary: "list the models that this key can use for batches, with the price of an image",
  options: [{ flags: "--realtime", description: "list the models of `imgbatch generate` instead" }],
  examples: ["imgbatch models --json", "imgbatch models --realtime"],
  exits: asking,
  load: () => import("./run.ts"),
};
