import type { CommandSpec } from "../../command-line/command-spec.ts";
import { upstreamOption, vendorOption } from "../shared-options.ts";

export const exec: CommandSpec = {
  name: "exec",
  summary: "start a service, run a command that uses it, and exit with the command's code",
  arguments: [{ name: "<command...>", description: "the command and its arguments, after --" }],
  options: [
    { flags: "--port <n>", description: "the port to listen on", default: "a free one" },
    { flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" },
    upstreamOption,
    vendorOption,
    {
      flags: "--max-cost <usd>",
      description: "with a paid upstream: all that the command may spend",
      default: "0",
    },
    {
      flags: "--simulate <spec>",
      description: "slow down or fail drawings, for example latency=2s,fail=0.1,seed=7",
    },
    {
      flags: "--grace <time>",
      description: "how long running items may take after the command has ended",
      default: "0s",
    },
    {
      flags: "--log-level <level>",
      description: "debug, info, warn or error",
      default: "warn",
      choices: ["debug", "info", "warn", "error"],
    },
  ],
  examples: [
    "imgbatch exec -- npm test",
    "imgbatch exec --upstream google --max-cost 2 -- npm test",
    "imgbatch exec --simulate fail=0.1,seed=7 -- ./nightly.sh",
  ],
  notes: [
    "Images of a paid upstream cost real money: without --max-cost the command gets none of them. With --data, the account of that directory pays; `imgbatch admin accounts top-up` adds money to it.",
  ],
  json: false,
  exits: ["auth", "conflict"],
  load: () => import("./run.ts"),
};
