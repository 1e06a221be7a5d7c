import type { ServiceConnection } from "./service-connection.ts";

/** An option of a command, as commander takes it. */
export interface OptionSpec {
  /** Commander's notation: `-o, --output <dir>`, `--detach`, `--metadata <k=v...>`. */
  flags: string;
  description: string;
  /** Shown in the help; the command applies it. */
  default?: string;
  /** May be given several times; the command gets a list. */
  repeatable?: true;
}

export interface ArgumentSpec {
  /** Commander's notation: `<file>`, `[dir]`, `<ids...>`. */
  name: string;
  description: string;
}

/** What the command table knows of a command. Cheap to import: the work is behind `load`. */
export interface CommandSpec {
  name: string;
  summary: string;
  arguments?: readonly ArgumentSpec[];
  options?: readonly OptionSpec[];
  /** Lines of example calls for the help. */
  examples?: readonly string[];
  /** Lines at the end of the help. */
  notes?: readonly string[];
  /** Running it again makes and bills again: the advice after an error must not promise otherwise. */
  paysAgain?: true;
  /** Commands below this one, as in `admin check`. */
  commands?: readonly CommandSpec[];
  /** Only where a command has no `--json`, because it is no question with one answer. */
  json?: false;
  load?: () => Promise<{ run: RunCommand }>;
}

/** Options that every command takes. */
export interface GlobalOptions {
  json: boolean;
  quiet: boolean;
  verbose: boolean;
  color: boolean;
  progress: "auto" | "plain" | "none";
  baseUrl?: string;
  apiKeyFile?: string;
  apiKeyStdin: boolean;
  data?: string;
  config?: string;
}

/** What a command may touch. Tests give their own. */
export interface CommandContext {
  global: GlobalOptions;
  /** The parsed options of this command, by camel-case name. */
  options: Readonly<Record<string, unknown>>;
  arguments: readonly string[];
  /** The working directory, for relative paths. */
  cwd: string;
  /** Aborted by the first SIGINT or SIGTERM; the reason is an `ImgbatchError` (INTERRUPTED, TERMINATED). */
  signal: AbortSignal;
  output: Output;
  /** All of standard input. */
  readStdin(): Promise<Uint8Array>;
  /** Finds or starts the service. Call `close` at the end. */
  connect(needs: { workers: boolean }): Promise<ServiceConnection>;
}

/** The result of a command: stdout in both forms, and the exit code. `json` is the one document of `--json`. */
export interface CommandResult {
  exitCode: number;
  json: unknown;
  /** Lines for stdout without `--json`. */
  lines?: readonly string[];
}

export type RunCommand = (context: CommandContext) => Promise<CommandResult>;

/** Where a command says things while it works: always stderr. */
export interface Output {
  /** A line that stays. */
  note(line: string): void;
  /** A line only with `--verbose`. */
  detail(line: string): void;
  /** The live line: a spinner on a terminal, otherwise a line on change, at most one per 10 s. */
  progress(text: string): void;
  /** Ends the live line; nothing of it stays. */
  settle(): void;
}
