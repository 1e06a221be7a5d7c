import type { ExitName } from "../contract/errors.ts";
import type { Clock } from "../kernel/clock.ts";
import type { RunReporter } from "../runs/directory/run-service.ts";
import type { SharedOptions } from "./commands/shared-options.ts";
import type { ConnectedService, ServiceNeeds } from "./connect/connection.ts";
import type { GlobalOptions, OptionTable, Values } from "./options.ts";

/** Loads the code of the live view, which only a terminal needs. */
export type LoadView = () => Promise<typeof import("../dashboard/show.tsx")>;

/** The shared options that a command does not have. */
type Without<O> = { readonly [K in Exclude<keyof SharedOptions, keyof O>]?: undefined };

/**
 * Everything that a command works with. Tests pass their own. `O`: the values of its options. Code that serves several commands
 * leaves `O` out: then only the options that commands share have types.
 */
export interface CommandContext<O extends object = SharedOptions> {
  global: GlobalOptions;
  options: O & Without<O>;
  arguments: readonly string[];
  /** The command line as typed, without the name of the program. */
  typed: readonly string[];
  /** The working directory, for relative paths. */
  cwd: string;
  /** Files are read and written below this directory alone, also where links lead. Default: anywhere. */
  root?: string;
  /** Directories and files with secrets of imgbatch: nothing in them is read or written as a file of a run. Default: none. */
  hidden?: readonly string[];
  /** Pays for images in place of a person's consent. */
  purse?: Purse;
  /** Time for everything that the command records, shows or waits for. */
  clock: Clock;
  /** When the command began, in ms since 1970: what is paid from then on is paid now. */
  beganMs: number;
  /** Aborted by the first SIGINT or SIGTERM; the reason is an `ImgbatchError` (INTERRUPTED, TERMINATED). */
  signal: AbortSignal;
  /** From now on the command handles signals itself: they abort nothing, and a second one does not end the process. */
  takeSignals(): void;
  output: Output;
  results: Results;
  /** The chunks of standard input. The signal (default: the command's) stops the reading. */
  stdin(signal?: AbortSignal): AsyncIterable<Uint8Array>;
  /** All of standard input. The signal is the same. */
  readStdin(signal?: AbortSignal): Promise<Uint8Array>;
  /**
   * Asks a question on the terminal and returns the typed line; throws the signal's reason. Null when nobody can answer:
   * standard input or stderr is no terminal.
   */
  ask: ((question: string, signal: AbortSignal) => Promise<string>) | null;
  loadView: LoadView;
  /** Finds or starts the service; the signal (default: the command's) stops that. The caller stops the service at the end. */
  connect(needs: ServiceNeeds, signal?: AbortSignal): Promise<ConnectedService>;
}

/** What an agent may spend. */
export interface Purse {
  /**
   * Sets aside what images may cost, before they are asked for; 0 when none are. The caller has the lock of the run. Throws
   * `COST_LIMIT` if that is too much.
   */
  reserve(wanted: { micros: number; images: number }): Promise<void>;
}

/** The result of a command: its exit code, and stdout in both forms. `json` is the one document of `--json`. */
export interface CommandResult {
  /** Default: success. */
  exitCode?: number;
  json: unknown;
  /** Lines for stdout without `--json`. */
  lines?: readonly string[];
  /** The next command to type, shown on stderr after the result. Null or undefined: none. */
  next?: string | null;
}

/** Writes lines to stderr. */
export interface Lines {
  /** Writes a line that stays. */
  note(line: string): void;
  /** Writes a line, only with `--verbose`. */
  detail(line: string): void;
  /**
   * Shows progress: as a spinner on a terminal; elsewhere as a line when the text has changed, at most every 10 s, and
   * once a minute when it has not. `sinceMs` is when the work began: the line then shows the elapsed time.
   */
  progress(text: string, sinceMs?: number): void;
  /** Removes the spinner. */
  settle(): void;
}

/** The output of a command while it works: stderr for people, `--events` for programs. */
export interface Output extends Lines, Required<RunReporter> {
  /** Writes a line that stays, and an event. */
  warn(line: string): void;
  /** Writes a workflow command for the runner of GitHub Actions. No other line reaches the runner as a command. */
  annotate(line: string): void;
}

/** Standard output, for commands that write their result line by line or format it for a terminal. */
interface Results {
  /** Whether a person reads it: a terminal, without `--json` and `--events -`. */
  isForPeople: boolean;
  /** The width of the terminal in cells; 80 elsewhere. */
  columns: number;
  /** Writes a line of the result now; does nothing with `--json` or `--events -`. */
  line(text: string): void;
  /** Aborted when the reader has closed stdout. */
  closed: AbortSignal;
}

interface ArgumentSpec {
  /** Commander's notation: `<file>`, `[dir]`, `<ids...>`. */
  name: string;
  description: string;
  /** The words that it takes, for the completion of shells. The command checks them. */
  choices?: readonly string[];
}

/** A command: the parser, the help and the completion read it. */
export interface CommandSpec extends CommandDetails {
  name: string;
  summary: string;
}

/** What a command takes and does. */
export interface CommandDetails {
  arguments?: readonly ArgumentSpec[];
  options?: OptionTable;
  /**
   * The options that most people need. The help shows them first, then the others below the headings of their groups. Default:
   * all stand together.
   */
  first?: readonly string[];
  /** Lines of example calls for the help. */
  examples?: readonly string[];
  /** Paragraphs of the help, between the examples and the exit codes. */
  notes?: readonly string[];
  /** The exits besides success, wrong usage and an internal error. For the help. */
  exits?: readonly ExitName[];
  /** Running it again makes and bills images again: the advice after an error must not promise otherwise. */
  paysAgain?: true;
  /** Running it again continues where it stopped and pays nothing twice: the advice after an error uses this. */
  resumes?: true;
  /** Commands below this one, as in `admin check`. */
  commands?: readonly CommandSpec[];
  /** False for a command without `--json`, because its output is not one document. */
  json?: false;
  /** Left out for a group of commands. */
  run?(context: CommandContext): Promise<CommandResult>;
}

/** Describes a command whose `run` gets the values of these options, each with the type that its entry reads. */
export function defineCommand<const T extends OptionTable>(
  details: Omit<CommandDetails, "options" | "first" | "run"> & {
    options: T;
    first?: readonly (keyof T & string)[];
    run(context: CommandContext<Values<T>>): Promise<CommandResult>;
  },
): CommandDetails & { options: T } {
  return details as CommandDetails & { options: T };
}
