import type { Clock } from "../../kernel/clock.ts";
import type { RunReporter } from "../../runs/reporter.ts";
import type { ServiceConnection } from "../service/connection.ts";
import type { GlobalOptions } from "./global-options.ts";

/** What a command may touch. Tests give their own. */
export interface CommandContext {
  global: GlobalOptions;
  /** The parsed options of this command, by camel-case name. */
  options: Readonly<Record<string, unknown>>;
  arguments: readonly string[];
  /** The working directory, for relative paths. */
  cwd: string;
  /** Time for everything that the command records, shows or waits for. */
  clock: Clock;
  /** Aborted by the first SIGINT or SIGTERM; the reason is an `ImgbatchError` (INTERRUPTED, TERMINATED). */
  signal: AbortSignal;
  /** From here on the command sees to signals itself: they abort nothing, and a second one does not end the process. */
  takeSignals(): void;
  output: Output;
  results: Results;
  /** Standard input piece by piece, until the signal (default: the command's) ends that. */
  stdin(signal?: AbortSignal): AsyncIterable<Uint8Array>;
  /** All of it. */
  readStdin(signal?: AbortSignal): Promise<Uint8Array>;
  /** Finds or starts the service, until the signal (default: the command's) ends that. Call `close` at the end. */
  connect(needs: { workers: boolean }, signal?: AbortSignal): Promise<ServiceConnection>;
}

/** The result of a command: stdout in both forms, and the exit code. `json` is the one document of `--json`. */
export interface CommandResult {
  exitCode: number;
  json: unknown;
  /** Lines for stdout without `--json`. */
  lines?: readonly string[];
  /** What to type next, told on stderr after the result; null and undefined for nothing. */
  next?: string | null;
}

export type RunCommand = (context: CommandContext) => Promise<CommandResult>;

/** How lines are said on stderr. */
export interface Lines {
  /** A line that stays. */
  note(line: string): void;
  /** A line only with `--verbose`. */
  detail(line: string): void;
  /**
   * The live line: a spinner on a terminal, otherwise a line on change, at most one per 10 s, and a sign of life each
   * minute. `sinceMs`: when the work began; then it tells how long that is ago.
   */
  progress(text: string, sinceMs?: number): void;
  /** Ends the live line; nothing of it stays. */
  settle(): void;
}

/** Where a command says things while it works: stderr for people, `--events` for programs. */
export interface Output extends Lines, Required<RunReporter> {
  /** A line that stays, and an event. */
  warn(line: string): void;
  /** A line that is meant for the runner of GitHub Actions: the only ones that may command it. */
  annotate(line: string): void;
}

/** Standard output, for commands whose result comes bit by bit or looks different on a terminal. */
export interface Results {
  /** Whether people read it: a terminal, and neither `--json` nor `--events -`. */
  isForPeople: boolean;
  /** The width of the terminal; 80 elsewhere. */
  columns: number;
  /** A line of the result now; nothing with `--json` and `--events -`. */
  line(text: string): void;
  /** Aborted when nobody reads any more. */
  closed: AbortSignal;
}
