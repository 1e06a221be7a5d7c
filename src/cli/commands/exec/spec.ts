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
    "The command finds address and key in IMGBATCH_BASE_URL and IMGBATCH_API_KEY, and in the variables that the vendors' libraries read: OPENAI_BASE_URL, OPENAI_API_KEY, GOOGLE_GEMINI_BASE_URL, GEMINI_API_KEY (GOOGLE_API_KEY is removed). Signals are passed on. The exit code is the command's: after a signal 128 plus its number, 127 when there is no such command, 126 when it cannot be run.",
    "Even after kill -9, the service's directory and every process of the command's group are removed; on Linux also processes that have left the group, unless they have cleared their environment.",
    "Images of a paid upstream cost real money: without --max-cost the command gets none of them. With --data, the account of that directory pays; `imgbatch admin accounts top-up` adds money to it.",
  ],
  json: false,
  exits: ["auth", "conflict"],
  load: () => import("./run.ts"),
};
