import type { CommandSpec } from "../../command-line/command-spec.ts";

export const webConsole: CommandSpec = {
  name: "console",
  summary: "open the web console of the running service, signed in",
  options: [{ flags: "--no-open", description: "print the link, and open no browser" }],
  examples: ["imgbatch console", "imgbatch console --no-open"],
  notes: [
    "The link signs in once, within 10 minutes. Whoever opens it first can use the service with your key.",
  ],
  exits: ["auth", "temporary", "gone"],
  load: () => import("./run.ts"),
};
