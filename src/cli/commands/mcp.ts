import { defineCommand } from "../command.ts";
import * as option from "../options.ts";
import { moneyOptions, upstreamOption } from "./shared-options.ts";

const options = {
  root: option.path({
    flags: "--root <dir>",
    description: "read and write files below this directory alone",
    default: "this directory",
  }),
  upstream: upstreamOption,
  maxCostMicroUsd: option.usd({
    flags: "--max-cost <usd>",
    description:
      "agree that agents pay up to this in all, also over restarts; without it no paid image is made",
  }),
  unitCostMicroUsd: moneyOptions.unitCostMicroUsd,
};

export const command = defineCommand({
  options,
  examples: ["imgbatch mcp", "imgbatch mcp --upstream google --max-cost 5"],
  notes: [
    "A client such as an editor starts this command, and speaks with it over standard input and output. `imgbatch init --template mcp` writes the .mcp.json that tells it so.",
    "The total is of all time: a running batch counts with its reserved amount, an ended batch with its cost. It is kept in the data directory. A person raises it with a higher --max-cost.",
    "When the client closes its end, no more images are begun, and paid requests are waited for. A run that is named again goes on.",
  ],
  exits: ["auth", "conflict"],
  json: false,
  run: async (context) => {
    const { serveMcp } = await import("../mcp/server.ts");
    await serveMcp(context, context.options.root ?? ".");
    return { json: null };
  },
});
