import type { CommandSpec } from "../../command-line/command-spec.ts";

export const serve: CommandSpec = {
  name: "serve",
  summary: "run the whole service on this machine until it is stopped",
  options: [
    { flags: "--port <n>", description: "the port; 0 for a free one", default: "8787" },
    { flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" },
    { flags: "--ephemeral", description: "use a data directory that is removed at the end" },
    { flags: "--ready-file <file>", description: "write URL, process id and data directory here when ready" },
    {
      flags: "--simulate <what>",
      description: "latency=2s,fail=0.1,seed=7: make the drawings slow or faulty",
    },
    { flags: "--no-ui", description: "lines of log also on a terminal, instead of the live view" },
    { flags: "--grace <time>", description: "time for running items when stopping", default: "10s" },
    {
      flags: "--log-level <level>",
      description: "debug, info, warn or error",
      default: "info",
      choices: ["debug", "info", "warn", "error"],
    },
  ],
  examples: ["imgbatch serve", "imgbatch serve --port 0 --data ./data --ready-file ready.json"],
  exits: ["conflict", "saving"],
  json: false,
  load: () => import("./run.ts"),
};
