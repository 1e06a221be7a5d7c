import { resolve } from "node:path";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import { programName } from "../../kernel/command-line.ts";
import { liesInOne, realPathBelow } from "../../kernel/files.ts";
import { hideApiKeys, hideUsedKeysIn } from "../../kernel/hide-keys.ts";
import { numberToMicros } from "../../kernel/money.ts";
import type { CommandContext, CommandDetails, CommandResult, Output } from "../command.ts";
import { command as download } from "../commands/download.ts";
import { command as generate } from "../commands/generate.ts";
import { command as items } from "../commands/items.ts";
import { command as models } from "../commands/models.ts";
import { command as retry } from "../commands/retry.ts";
import { command as status } from "../commands/status.ts";
import { command as submit } from "../commands/submit.ts";
import { httpTo, opened } from "../connect/connect.ts";
import type { ConnectedService, ServiceNeeds } from "../connect/connection.ts";
import { type Typed, valuesOf } from "../options.ts";
import { errorDocument, toImgbatchError } from "../output/finish.ts";
import { adviceFor } from "../output/next-step.ts";
import type { Spending } from "./spending.ts";

/** What all calls of a server share. */
export interface Session {
  /** The context of the command `mcp`. Its working directory is the root, a real path. */
  context: CommandContext;
  spending: Spending;
  /** Returns the service that the calls use. */
  connect(needs: ServiceNeeds): Promise<ConnectedService>;
  /** The options of `mcp` that go on to the commands which make images. */
  passed: { upstream?: string; unitCostMicroUsd?: string };
  /** Aborted when the client has closed its end. */
  closing: AbortSignal;
}

/** The commands that tools run. */
const COMMANDS = { download, generate, items, models, retry, status, submit };

/** What is typed for the options of a command, by their names. */
type TypedFor<Command extends CommandDetails> = { [Name in keyof Command["options"]]?: Typed };

/** A command line that a tool runs. */
export type Line = {
  [Name in keyof typeof COMMANDS]: {
    command: Name;
    arguments?: readonly string[];
    options?: TypedFor<(typeof COMMANDS)[Name]>;
    /** The text of standard input. */
    stdin?: string;
    /** The directory whose images are paid for: a real path. Left out by tools that make none. */
    pays?: string;
    /** Whether it goes on when the client has closed its end: its images are paid, and not kept elsewhere. */
    outlasts?: boolean;
  };
}[keyof typeof COMMANDS];

/** The result of a command, with what it said to a person. */
export interface Done {
  json: Record<string, unknown>;
  isOk: boolean;
  notes: string[];
  next: string | null;
  /** The service; null if the command needed none. */
  http: Http | null;
}

/** The commands that make images. */
const MAKING: readonly string[] = ["submit", "generate", "retry"];
/** More lines say nothing to an agent. */
const MOST_NOTES = 40;

/** Runs a command, as the command line does. `tell` gets its progress. Throws what the command throws. */
export async function runLine(session: Session, line: Line, tell: (text: string) => void): Promise<Done> {
  const { context, closing, spending } = session;
  const { command: name, arguments: words = [], options = {}, stdin = "", pays } = line;
  const notes: string[] = [];
  const note = (text: string) => {
    // Paying again for what is here is no way out for an agent.
    if (notes.length < MOST_NOTES) notes.push(hideApiKeys(text.replace(" (--new to generate again)", "")));
  };
  const output: Output = {
    note,
    warn: note,
    detail: context.output.detail,
    progress: tell,
    annotate() {},
    settle() {},
    event() {},
  };
  let http: Http | null = null;
  const bytes = Buffer.from(stdin);
  const inner: Omit<CommandContext, "options"> = {
    ...context,
    beganMs: context.clock.nowMs(),
    global: { ...context.global, json: true },
    arguments: words,
    typed: [name, ...words],
    signal: line.outlasts ? new AbortController().signal : closing,
    takeSignals() {},
    output,
    results: { isForPeople: false, columns: 80, line() {}, closed: closing },
    stdin: async function* () {
      yield bytes;
    },
    readStdin: async () => bytes,
    ask: null,
    root: context.cwd,
    connect: async (needs) => {
      const service = await session.connect(needs);
      const { clock } = context;
      http = httpTo(service, { output, clock });
      return opened(noting(service, note), { output, clock });
    },
  };
  const connected = () => {
    if (http === null) throw new ImgbatchError("INTERNAL", "A call reserves money before it has a service.");
    return http;
  };
  const purse = pays === undefined ? null : spending.purseFor(pays, connected);
  if (purse !== null) inner.purse = purse;
  let result: CommandResult | null = null;
  try {
    const typed = { ...options, ...(MAKING.includes(name) ? session.passed : {}) };
    const { run, options: table = {} }: CommandDetails = COMMANDS[name];
    result = (await run?.({ ...inner, options: valuesOf(table, typed, inner.beganMs) })) ?? null;
  } finally {
    await purse?.settle(madeBy(result));
  }
  if (result === null) throw new ImgbatchError("INTERNAL", `There is no command ${name}.`);
  const { json, exitCode = 0, next = null } = result;
  return { json: json as Record<string, unknown>, isOk: exitCode === 0, notes, next: forTools(next), http };
}

/** An agent does not wait: it looks again. It never pays for all images anew. */
function forTools(next: string | null): string | null {
  if (next?.includes("--new")) return "ask the person, or choose another output";
  return (
    next?.replaceAll(`${programName()} wait `, `${programName()} status `).replaceAll("\n", "; ") ?? null
  );
}

/** The images that a command has made without batches. */
function madeBy(result: CommandResult | null) {
  if (result === null) return null;
  const {
    cost = null,
    play_money: isPlay = false,
    items = [],
  } = result.json as {
    cost?: number | null;
    play_money?: boolean;
    items?: { error?: { code: string } }[];
  };
  const failures = items.flatMap(({ error }) => error?.code ?? []);
  return { micros: cost === null || isPlay ? 0 : numberToMicros(cost), failures };
}

/** An embedded service outlives each call, as one of another process does. An agent is told each time that images are drawn. */
function noting(service: ConnectedService, note: (text: string) => void): ConnectedService {
  if (service.kind === "remote") return service;
  // No call ends the work of another one.
  const { pause: _, ...shared } = service;
  const { providers = [] } = shared;
  const isDrawing = providers.length > 0 && providers.every(({ type }) => type === "procedural");
  const noteDrawings = () => {
    if (isDrawing)
      note(
        `these images are procedural drawings, not a model's: a person chooses one with \`${programName()} mcp --upstream NAME\``,
      );
  };
  // The server names the batches of its calls until it ends.
  return { ...shared, kind: "running", stopsWithCommand: false, stop: async () => {}, noteDrawings };
}

/**
 * Returns the real path of a file or directory that an agent names. Throws `OUTSIDE_ROOT` if it is not below the root, also
 * where links lead, or belongs to imgbatch itself: its data have a key.
 */
export async function pathBelow({ context: { cwd, hidden = [] } }: Session, path: string): Promise<string> {
  const real = path.includes("\0") ? null : await realPathBelow(cwd, resolve(cwd, path));
  if (real !== null && (await liesInOne(hidden, real)))
    throw new ImgbatchError("OUTSIDE_ROOT", `${JSON.stringify(path)} belongs to imgbatch itself.`, {
      advice: "use a directory of your own",
    });
  if (real !== null) return real;
  throw new ImgbatchError("OUTSIDE_ROOT", `${JSON.stringify(path)} leads out of ${cwd}.`, {
    advice: `use a path below ${cwd}; a person chooses another one with \`${programName()} mcp --root DIR\``,
  });
}

/** The document for an error: what `--json` prints, and the next step. */
export function failureOf(thrown: unknown, line: Partial<Line>) {
  const error = toImgbatchError(thrown);
  const { command: path = "", arguments: words = [], options = {} } = line;
  const typed = { path, arguments: words, options, where: {}, paysAgain: false, resumes: true };
  return hideUsedKeysIn({ ...errorDocument(error), next: forTools(hideApiKeys(adviceFor(error, typed))) });
}
