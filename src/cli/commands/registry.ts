import type { CommandDetails, CommandSpec } from "../command.ts";

interface CommandEntry {
  name: string;
  summary: string;
  load(): Promise<CommandDetails>;
}

/** Every command, in the order of the help. Importing this file must stay cheap: the code of a command loads when it is named. */
const COMMANDS: readonly CommandEntry[] = [
  {
    name: "submit",
    summary: "check prompts, submit them, wait, download and verify; run it again to resume or repair",
    load: async () => (await import("./submit.ts")).command,
  },
  {
    name: "generate",
    summary: "make one image now, or all images of a prompt file; each is a separate request",
    load: async () => (await import("./generate.ts")).command,
  },
  {
    name: "status",
    summary: "show how batches stand now; never waits",
    load: async () => (await import("./status.ts")).command,
  },
  {
    name: "wait",
    summary: "wait until batches have ended; the exit code reports the outcome",
    load: async () => (await import("./wait.ts")).command,
  },
  {
    name: "watch",
    summary: "wait and show progress; without an id, of every running batch",
    load: async () => (await import("./watch.ts")).command,
  },
  {
    name: "list",
    summary: "list your batches, newest first; in a pipe, fields separated by tabs",
    load: async () => (await import("./list.ts")).command,
  },
  {
    name: "items",
    summary: "list the images of a batch or a run with their outcome",
    load: async () => (await import("./items.ts")).command,
  },
  {
    name: "download",
    summary: "download and verify the images of an ended batch, or one of them; run it again to resume",
    load: async () => (await import("./download.ts")).command,
  },
  {
    name: "open",
    summary: "open the contact sheet of a run in the browser; without a desktop, print its path",
    load: async () => (await import("./open.ts")).command,
  },
  {
    name: "review",
    summary: "look at the pictures of a run in the browser, and decide which stay and which are made again",
    load: async () => (await import("./review.ts")).command,
  },
  {
    name: "check",
    summary:
      "prove that the pictures in a repository are those of their prompts, and say what is not; asks nobody",
    load: async () => (await import("./check.ts")).command,
  },
  {
    name: "export",
    summary: "write the pictures of a run as a data set, with their prompts",
    load: async () => (await import("./export.ts")).command,
  },
  {
    name: "pack",
    summary: "write a run into one ZIP to hand over: contact sheet, images, results and prompts",
    load: async () => (await import("./pack.ts")).command,
  },
  {
    name: "cancel",
    summary: "cancel a batch, or all batches of a run; finished images stay and are billed",
    load: async () => (await import("./cancel.ts")).command,
  },
  {
    name: "retry",
    summary: "make failed or unwanted images of a run again, into the same directory; run it again to resume",
    load: async () => (await import("./retry.ts")).command,
  },
  {
    name: "finish",
    summary: "end the vendor's jobs of a run, fetch what they made, and have another upstream make the rest",
    load: async () => (await import("./finish.ts")).command,
  },
  {
    name: "delete",
    summary: "delete the images or the record of an ended batch from the service; local files stay",
    load: async () => (await import("./delete.ts")).command,
  },
  {
    name: "models",
    summary: "list the models that this key can use for batches, with the price of an image",
    load: async () => (await import("./models.ts")).command,
  },
  {
    name: "serve",
    summary: "run the service on this machine until it is stopped",
    load: async () => (await import("./serve.ts")).command,
  },
  {
    name: "console",
    summary: "open the web console of the running service, signed in",
    load: async () => (await import("./console.ts")).command,
  },
  {
    name: "exec",
    summary: "start a service, run a command that uses it, and exit with the command's code",
    load: async () => (await import("./exec.ts")).command,
  },
  {
    name: "mcp",
    summary: "let an agent make images: a Model Context Protocol server on standard input and output",
    load: async () => (await import("./mcp.ts")).command,
  },
  {
    name: "ready",
    summary: "check whether the service is ready and accepts the key",
    load: async () => (await import("./ready.ts")).command,
  },
  {
    name: "init",
    summary: "write example prompts, a configuration or a CI file into a directory",
    load: async () => (await import("./init.ts")).command,
  },
  {
    name: "schema",
    summary:
      "print a JSON Schema (prompts, config, catalogue, result, event) or the OpenAPI document (openapi)",
    load: async () => (await import("./schema.ts")).command,
  },
  {
    name: "providers",
    summary: "show the configured providers of a data directory: state, until when, why, counts, spend",
    load: async () => (await import("./providers.ts")).command,
  },
  {
    name: "doctor",
    summary: "check everything a run needs: keys, upstreams, service, clock, disk; costs nothing",
    load: async () => (await import("./doctor.ts")).command,
  },
  {
    name: "completion",
    summary: "print the completion script of a shell: bash, zsh or fish",
    load: async () => (await import("./completion.ts")).completionOf(loadCommands),
  },
  {
    name: "budget",
    summary: "set how much real money may be spent in a day or a month, and show what is spent",
    load: async () => (await import("./budget.ts")).command,
  },
  {
    name: "admin",
    summary: "manage the accounts, keys and money of a data directory; check, back up and move it",
    load: async () => (await import("./admin.ts")).command,
  },
];

/** Loads the code of all commands. */
export function loadCommands(): Promise<CommandSpec[]> {
  return Promise.all(COMMANDS.map(loadCommand));
}

/** Loads the commands that a command line names. The others have a name and a summary only, for the help. */
export function loadNamedCommands(argv: readonly string[]): Promise<CommandSpec[]> {
  // A command at the beginning is the one to run, whatever words follow.
  const first = COMMANDS.find(({ name }) => name === argv[0]);
  const isNamed = ({ name }: CommandEntry) =>
    first === undefined ? argv.includes(name) : name === first.name;
  return Promise.all(COMMANDS.map(async (entry) => (isNamed(entry) ? loadCommand(entry) : entry)));
}

async function loadCommand({ name, summary, load }: CommandEntry): Promise<CommandSpec> {
  return { name, summary, ...(await load()) };
}
