import type { CommandSpec, OptionSpec } from "../command.ts";

/** What a run leaves for people and CI systems; `readReportFlags` reads these. */
export const reportOptions: readonly OptionSpec[] = [
  { flags: "--junit <file>", description: "write JUnit XML: a test case for each image" },
  { flags: "--markdown <file>", description: "write a summary in Markdown, failures first" },
  { flags: "--gallery", description: "write index.html, the contact sheet (default)" },
  { flags: "--no-gallery", description: "leave index.html out" },
];

const exec: CommandSpec = {
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
    { flags: "--log-level <level>", description: "debug, info, warn or error", default: "warn" },
  ],
  examples: ["imgbatch exec -- npm test", "imgbatch exec --simulate fail=0.1,seed=7 -- ./nightly.sh"],
  json: false,
  exits: ["conflict"],
  load: () => import("../commands/exec.ts"),
};

const ready: CommandSpec = {
  name: "ready",
  summary: "ask whether the service is ready to work and takes the key",
  options: [
    { flags: "--wait", description: "until it is" },
    { flags: "--timeout <time>", description: "with --wait: give up after this time", default: "30s" },
  ],
  examples: ["imgbatch ready --wait --timeout 2m && imgbatch submit prompts.jsonl"],
  exits: ["auth", "temporary", "gone", "timeout", "interrupted", "terminated"],
  load: () => import("../commands/ready.ts"),
};

const init: CommandSpec = {
  name: "init",
  summary: "put prompts, a configuration, or a CI file to start from into a directory",
  arguments: [{ name: "[dir]", description: "the directory, this one if left out" }],
  options: [
    {
      flags: "--template <name>",
      description: "starter (prompts and configuration), github, gitlab, script or all; may be repeated",
      default: "starter",
      repeatable: true,
    },
    { flags: "--force", description: "replace files that are there" },
  ],
  examples: ["imgbatch init", "imgbatch init --template github"],
  exits: ["saving"],
  load: () => import("../commands/init.ts"),
};

const schema: CommandSpec = {
  name: "schema",
  summary: "print a JSON Schema: prompts, config, result, event or openapi",
  arguments: [{ name: "[name]", description: "which one; without it, their names" }],
  examples: ["imgbatch schema prompts > prompts.schema.json"],
  json: false,
  load: () => import("../commands/schema.ts"),
};

const doctor: CommandSpec = {
  name: "doctor",
  summary: "look for what may keep runs from working: key, service, clock, disk; costs nothing",
  examples: ["imgbatch doctor", "imgbatch doctor --json"],
  notes: [
    "When --base-url names the address of imgbatch.config.json, you agree to it: from then on, later commands send your key there.",
  ],
  exits: ["auth", "conflict", "temporary", "saving"],
  load: () => import("../commands/doctor.ts"),
};

function completion(table: () => readonly CommandSpec[]): CommandSpec {
  return {
    name: "completion",
    summary: "print the completion of a shell: bash, zsh or fish",
    arguments: [{ name: "<shell>", description: "bash, zsh or fish" }],
    examples: ["imgbatch completion fish | source", "source <(imgbatch completion bash)    # in ~/.bashrc"],
    json: false,
    load: async () => {
      const { completionOf } = await import("../commands/completion.ts");
      return { run: completionOf(table()) };
    },
  };
}

/** Commands for scripts and CI systems. `table` answers every command of the program, these too. */
export function pipelineCommands(table: () => readonly CommandSpec[]): readonly CommandSpec[] {
  return [exec, ready, init, schema, doctor, completion(table)];
}
