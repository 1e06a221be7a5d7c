import { ROLES } from "../../../config/roles.ts";
import type { CommandSpec } from "../../command-line/command-spec.ts";
import { storageOptions, upstreamOption, vendorOption } from "../shared-options.ts";

export const serve: CommandSpec = {
  name: "serve",
  summary: "run the service on this machine until it is stopped",
  options: [
    { flags: "--port <n>", description: "the port to listen on; 0 for a free one", default: "8787" },
    { flags: "--host <address>", description: "the address to listen on", default: "127.0.0.1" },
    {
      flags: "--role <role>",
      description: "all; api: take requests; worker: make images. The last two share a database and a bucket",
      default: "all",
      choices: ROLES,
    },
    ...storageOptions,
    upstreamOption,
    vendorOption,
    { flags: "--ephemeral", description: "use a temporary data directory, removed at the end" },
    {
      flags: "--ready-file <file>",
      description: "write the URL, process id and data directory to this file when the service is ready",
    },
    {
      flags: "--simulate <spec>",
      description: "slow down or fail drawings, for example latency=2s,fail=0.1,seed=7",
    },
    { flags: "--no-ui", description: "print log lines instead of the live view, also on a terminal" },
    { flags: "--grace <time>", description: "how long running items may take after a stop", default: "10s" },
    {
      flags: "--log-level <level>",
      description: "debug, info, warn or error",
      default: "info",
      choices: ["debug", "info", "warn", "error"],
    },
  ],
  examples: [
    "imgbatch serve",
    "imgbatch serve --port 0 --data ./data --ready-file ready.json",
    "imgbatch serve --role worker --database postgres://db/main --blobs s3://main",
  ],
  exits: ["auth", "conflict", "saving"],
  json: false,
  load: () => import("./run.ts"),
};
