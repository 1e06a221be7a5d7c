import type { CommandSpec } from "../../command-line/command-spec.ts";

export const exec: CommandSpec = {
  name: "exec",
  summary: "run a command with a service of its own, and exit as it does",
  arguments: [{ name: "<command...>", description: "the command and its arguments, after --" }],
  options: [
    { flags: "--port <n>", description: "the port of the service", default: "a free one" },
    { flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" },
    {
      flags: "--simulate <what>",
      description: "latency=2s,fail=0.1,seed=7: make the drawings slow or faulty",
    },
    { flags: "--grace <time>", description: "time for running items at the end", default: "0s" },
    {
      flags: "--log-level <level>",
      description: "debug, info, warn or error",
      default: "warn",
      choices: ["debug", "info", "warn", "error"],
    },
  ],
  examples: ["imgbatch exec -- npm test", "imgbatch exec --simulate fail=0.1,seed=7 -- ./nightly.sh"],
  json: false,
  exits: ["conflict"],
  load: () => import("./run.ts"),
};
