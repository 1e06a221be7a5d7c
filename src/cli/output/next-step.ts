import { basename, extname } from "node:path";
import type { Batch } from "../../client/answers.ts";
import {
  type ErrorCode,
  type ExitName,
  errorEntry,
  type ImgbatchError,
  type Meant,
} from "../../contract/errors.ts";
import { isWaitingCode, type WaitingCode } from "../../contract/waiting.ts";
import { isOutOfCapacity } from "../../http/retries.ts";
import { programName, quoted, shellWord } from "../../kernel/command-line.ts";
import { holdsApiKey } from "../../kernel/hide-keys.ts";
import { isLacking, lastRound } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import { flagIn, type GlobalOptions, namesIn, type OptionSpec } from "../options.ts";

/** The parts of the command line that an advice can repeat. */
export interface Typed {
  /** The command, such as `admin keys list`; empty if none was recognised. */
  path: string;
  arguments: readonly string[];
  options: Readonly<Record<string, unknown>>;
  where: Whereabouts;
  /** Running the command again makes and bills images again. */
  paysAgain: boolean;
  /** Running the command again continues where it stopped. */
  resumes: boolean;
  /** The whole command line, where a person typed it, without the name of the program. */
  words?: readonly string[];
}

/** The value for a command line that could not be parsed. */
export const NOTHING_TYPED: Typed = {
  path: "",
  arguments: [],
  options: {},
  where: {},
  paysAgain: false,
  resumes: false,
};

type Advice = string | ((typed: Typed) => string);

/** The advice when the service has no usable upstream account. */
export const NO_CAPACITY_ADVICE =
  "the service has no capacity now, and asking again at once makes it worse: wait some minutes, then run the same command again";

/** After an error that means that a run belongs to another service or key. */
export const OWNER_ADVICE = "use the service and the key of the run again (--base-url, --data)";

const again: Advice = ({ resumes }) =>
  resumes
    ? "run the same command again: it continues where it stopped, and nothing is paid twice"
    : "run the same command again";
const key: Advice = (typed) =>
  `give a key in IMGBATCH_API_KEY or with --api-key-file, and check --base-url, then ${textOf(again, typed)}; to check both: ${nextCommand(typed.where, "doctor")}`;
const allowed: Advice = (typed) =>
  `ask the operator of the service to allow it for this key, then ${textOf(again, typed)}; what the key may use: ${nextCommand(typed.where, "models")}`;
const listed: Advice = (typed) => {
  const { path, where } = typed;
  return path === "submit"
    ? textOf(anew, typed)
    : `to list the batches of this key, the only one that can see them: ${nextCommand(where, "list")}`;
};
/** `--idempotency-key` and `--new` exclude each other. */
const anew: Advice = ({ options }) =>
  options.idempotencyKey === undefined
    ? "add --new to generate again with a fresh key"
    : "replace --idempotency-key with --new to generate with a fresh key, or give another key and another --output";
const ofItems =
  (what: string): Advice =>
  (typed) =>
    `${what}: ${about(typed, "items")}`;
const elsewhere: Advice = ({ path }) =>
  ["submit", "download", "generate"].includes(path)
    ? "run the same command with another directory in --output"
    : OWNER_ADVICE;

/** A command line about the same batch or run. */
function about(typed: Typed, command: string): string {
  return nextCommand(typed.where, command, ...subjectOf(typed));
}

/** The commands whose runs somebody may want to give up after a stop. */
const STOPPABLE: readonly string[] = ["submit", "retry", "finish", "wait", "watch"];

/** Adds to how a run goes on how to give it up. */
function orGiveUp(goOn: string, typed: Typed): string {
  if (!STOPPABLE.includes(typed.path) || subjectOf(typed).length === 0) return goOn;
  const [first = ""] = subjectOf(typed);
  return `to give up: ${nextCommand(typed.where, "cancel", first)}\n${goOn}`;
}

/** The arguments that name the batches or the run of a command. */
function subjectOf({ path, arguments: words, options }: Typed): readonly string[] {
  const { output } = options;
  if (path === "submit") return [typeof output === "string" ? output : defaultRunDirectory(words[0] ?? "-")];
  return ["wait", "watch", "status"].includes(path) ? words : words.slice(0, 1);
}

/** What has to change before a provider can be asked again. */
const REMEDIES: Readonly<Record<WaitingCode, string>> = {
  STOPPED: "name the batch in the wait command",
  CANCELLING: "wait a while",
  NO_WORKERS: "start a worker of the service",
  PROVIDER_NOT_CONFIGURED:
    "configure this provider again (`providers` in the configuration, or the --upstream of the command that made the batch)",
  PROVIDER_CREDENTIAL: "set a key that the upstream takes in the variable of the provider",
  PROVIDER_FORBIDDEN: "check at the upstream what the key of the provider may do",
  PROVIDER_BILLING: "check the balance and the limits at the upstream",
  PROVIDER_MODEL_MISSING: "check the provider's `models` and `baseUrl` in the configuration",
  PROVIDER_RATE_LIMITED: "wait a while",
  PROVIDER_UNREACHABLE: "check the provider's `baseUrl` and the network, or wait a while",
  PROVIDER_FAILING: "wait a while",
};

/** The advice for each error code. */
const ADVICE: Partial<Record<ErrorCode, Advice>> = {
  USAGE: ({ path }) => `${programName()} ${path === "" ? "" : `${path} `}--help`,
  INVALID_INPUT: "fix the lines above and run the same command again",
  INVALID_CONFIG: () =>
    `fix the file, then run the same command again; \`${programName()} schema config\` prints every key`,
  NETWORK: (typed) => `${textOf(again, typed)}; ${toFindTheCause(typed)}`,
  BAD_RESPONSE: "check --base-url; if it is right, run the same command again",
  TIMEOUT: (typed) => orGiveUp(about(typed, "wait"), typed),
  INTERRUPTED: (typed) => orGiveUp(textOf(again, typed), typed),
  TERMINATED: (typed) => orGiveUp(textOf(again, typed), typed),
  BATCH_IMAGE_NOT_READY: (typed) => about(typed, "wait"),
  BATCH_IMAGE_OUTPUT_DELETE_NOT_READY: (typed) => orGiveUp(about(typed, "wait"), { ...typed, path: "wait" }),
  BATCH_IMAGE_RECORD_DELETE_NOT_READY: (typed) => orGiveUp(about(typed, "wait"), { ...typed, path: "wait" }),
  BATCH_IMAGE_DISABLED: allowed,
  BATCH_IMAGE_GROUP_DISABLED: allowed,
  REALTIME_GROUP_NOT_NATIVE: allowed,
  HTTP_403: allowed,
  BATCH_IMAGE_IDEMPOTENCY_CONFLICT: (typed) =>
    typed.path === "submit" ? textOf(anew, typed) : about(typed, "status"),
  BATCH_IMAGE_OUTPUT_DELETED:
    "the directory of the run may have them: the download command with that directory checks its files, and says how to make the others",
  BATCH_IMAGE_NOT_FOUND: listed,
  BATCH_IMAGE_ITEM_NOT_FOUND: ofItems("to list its items"),
  BATCH_IMAGE_ITEM_FAILED: ofItems("to see why"),
  BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE: ofItems("to see how many images each item has"),
  BATCH_IMAGE_ZIP_TOO_MANY_ITEMS: (typed) => `without --zip there is no limit: ${about(typed, "download")}`,
  BATCH_IMAGE_DOWNLOAD_TOO_LARGE: (typed) => `without --zip there is no limit: ${about(typed, "download")}`,
  BATCH_IMAGE_RESULT_MISSING:
    "run the same command again; if the image is still missing, the retry command with --include-lost and the directory of the run makes it again, which is paid again",
  BATCH_IMAGE_INVALID_MODEL: ({ where }) => `to list what this key can use: ${nextCommand(where, "models")}`,
  REALTIME_REFUSED: "change the prompt",
  REALTIME_NO_IMAGE: "change the prompt, or run the same command again",
  REALTIME_OUTPUT_NOT_FOUND: "make the image again",
  REALTIME_MODEL_NOT_FOUND: ({ where }) =>
    `to list what this key can use: ${nextCommand(where, "models", { flag: "--realtime" })}`,
  DATA_DIRECTORY_IN_USE: "stop the other process, or choose another directory with --data",
  DIRECTORY_CONFLICT: elsewhere,
  LOCK_CONFLICT: "correct the lock file, and run the same command again",
  PROMPTS_CHANGED: ({ path }) => `${programName()} ${path} --help`,
  ORIGINALS_MISSING: ({ path }) => `${programName()} ${path} --help`,
  DIRECTORY_IN_USE: "wait until the other process has ended, then run the same command again",
  ADDRESS_IN_USE: "stop that program, or run the same command with --port 0, which takes a free port",
  COST_LIMIT: "raise --max-cost, or submit fewer images",
  STORAGE_FAILED: ({ where }) =>
    `check the disk, then start again: accepted batches are kept and continue; to verify the data: ${nextCommand(where, "admin", "check")}`,
  SAVE_FAILED:
    "free disk space or fix the permission, then run the same command again: it fetches only what is missing",
  VERIFY_FAILED: "run the same command again: it fetches only what is missing or damaged",
};

const UNBILLED = "nothing was made or billed: ";

function toFindTheCause({ where }: Pick<Typed, "where">): string {
  return `to find the cause: ${nextCommand(where, "doctor")}`;
}

/** What to do about a connection that could not be made, by the code of the system. */
const CONNECTIONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "start the service, or check the port of its address",
  ENOTFOUND: "check the name in the address of the service",
  EAI_AGAIN: "check the network and the name in the address of the service",
};

/**
 * The next step by the kind of failure: what has to change, then `again`. Null if the kind is not known. With `paysAgain`,
 * each request of the command is billed.
 */
export function adviceByKind(
  { code, because = code }: Pick<ImgbatchError, "code" | "because">,
  { where, paysAgain }: Pick<Typed, "where" | "paysAgain">,
  again: string,
): string | null {
  if (isWaitingCode(because)) {
    const isSlower = paysAgain && because === "PROVIDER_RATE_LIMITED";
    const probe = nextCommand(where, "providers", { flag: "--probe" });
    const isOfKey = because === "PROVIDER_CREDENTIAL" || because === "PROVIDER_FORBIDDEN";
    const changed =
      isOfKey && where.baseUrl === undefined ? ` (after a change at the upstream: ${probe})` : "";
    return `${REMEDIES[because]}${changed}, then ${again}${isSlower ? SLOWER : ""}`;
  }
  if (code !== "NETWORK" || because === code) return null;
  const usual = /CERT|SIGNATURE/.test(because) ? "certificate" : "address";
  const remedy = CONNECTIONS[because] ?? `check the ${usual} of the service and the network`;
  return `${remedy}, then ${again}; ${toFindTheCause({ where })}`;
}

/** The advice for codes that have none above, by exit code. */
const BY_EXIT: Record<ExitName, Advice> = {
  ok: again,
  internal: again,
  usage: "fix what the message names, then run the command again; nothing was made",
  auth: key,
  someFailed: (typed) => about(typed, "retry"),
  noImages: ofItems("to see why"),
  conflict: (typed) => about(typed, "status"),
  temporary: again,
  money: "top up the account, or ask for fewer images",
  saving: "free disk space or fix the permission, then run the same command again",
  gone: listed,
  timeout: (typed) => about(typed, "wait"),
  interrupted: again,
  terminated: again,
};

/** The next step after an error: the error's own advice, else the one for its code and command. */
export function adviceFor(error: ImgbatchError, typed: Typed): string {
  const mended = error.meant === undefined ? null : commandMeant(typed.words ?? [], error.meant);
  if (mended !== null) return mended;
  if (error.advice !== undefined) return error.advice;
  if (isOutOfCapacity(error)) return NO_CAPACITY_ADVICE;
  const { code } = error;
  if (error.message.startsWith("The budget") && errorEntry(code).exit === "money")
    return `${programName()} budget shows what is spent; ${programName()} budget AMOUNT/month sets another one`;
  const byKind = adviceByKind(error, typed, textOf(again, typed));
  if (byKind !== null) return `${typed.paysAgain && code === "NETWORK" ? UNBILLED : ""}${byKind}`;
  const advice = (typed.paysAgain ? PAID_AGAIN[code] : undefined) ?? ADVICE[code];
  return textOf(advice ?? BY_EXIT[errorEntry(code).exit], typed);
}

/**
 * Returns the lines of a next step. The last one is the command to type, where the step ends with one, or is "the same
 * command again"; what is said besides stands before it. A command that bills again is not repeated.
 */
export function stepLines(
  step: string,
  { words = [], paysAgain }: Pick<Typed, "words" | "paysAgain">,
): string[] {
  const before = step.split("\n");
  const last = before.pop() ?? "";
  const isAgain = /\bsame command again\b/.test(last) && !paysAgain && words.length > 0;
  if (isAgain && !mayBeSecret(words)) return [...before, last, `next: ${typedCommand(words)}`];
  const start = ` ${programName()} `;
  const at =
    [`:${start}`, `, then${start}`].map((text) => last.indexOf(text)).find((index) => index >= 0) ?? -1;
  const commandAt = at < 0 ? 0 : last.indexOf(start, at) + 1;
  const command = last.slice(commandAt);
  // What follows a command is no part of it.
  if (commandAt === 0 || command.includes("; ")) return [...before, `next: ${last}`];
  return [...before, last.slice(0, commandAt - 1).replace(/:?$/, ":"), `next: ${command}`];
}

function textOf(advice: Advice, typed: Typed): string {
  return typeof advice === "string" ? advice : advice(typed);
}

const NOTHING_PAID = "fix that and run the same command again; nothing was made";
const BILLED = "; an attempt whose response was lost may have been billed";
const ANOTHER = `run the same command again${BILLED}`;
const LATER = "wait a while, then run the same command again";
/** Where there were too many requests. */
const SLOWER = "; with --file also use a lower --concurrency or a lower --rpm";

/** The advice after an error of a command whose every request is billed, where it differs from the usual advice. */
const PAID_AGAIN: Partial<Record<ErrorCode, string>> = {
  INTERNAL: ANOTHER,
  NETWORK: ANOTHER,
  SERVICE_GONE: ANOTHER,
  INTERNAL_ERROR: ANOTHER,
  HTTP_502: ANOTHER,
  HTTP_504: ANOTHER,
  REALTIME_PROVIDER_FAILED: ANOTHER,
  REALTIME_PROVIDER_UNREACHABLE: ANOTHER,
  REALTIME_TIMEOUT: ANOTHER,
  INTERRUPTED: ANOTHER,
  TERMINATED: ANOTHER,
  TIMEOUT: "allow more time with --timeout, or leave it out",
  RATE_LIMITED: `${LATER}${SLOWER}`,
  HTTP_503: `${LATER}${SLOWER}`,
  REALTIME_PROVIDER_PAUSES: LATER,
  REALTIME_PROVIDER_LIMITED: `${LATER}${SLOWER}`,
  REALTIME_PROVIDER_OVERLOADED: `${LATER}${SLOWER}`,
  REALTIME_NO_PROVIDER: LATER,
  REALTIME_STOPPING: LATER,
  REALTIME_INVALID_ARGUMENT: NOTHING_PAID,
  NOT_FOUND: "check --base-url and --model: the service has no such path",
  REQUEST_TOO_LARGE: "use smaller or fewer --image files",
  REALTIME_IDEMPOTENCY_CONFLICT: "run the same command again: it sends a new request, which is billed",
  REALTIME_INSUFFICIENT_BALANCE: "top up the account",
  BATCH_IMAGE_INSUFFICIENT_BALANCE: "top up the account",
  IMAGE_REFUSED: "change the prompt or the input images; the same request would be refused again",
  NO_IMAGES: "state in the prompt that you want an image, and what it shows",
  SAVE_FAILED: "free disk space or fix the permission before you make the image again, which is billed again",
};

/** What the advice to run a command again adds after this error, whose requests are billed. */
export function whenBilled(code: ErrorCode): string {
  const advice = PAID_AGAIN[code] ?? "";
  return [BILLED, SLOWER].find((end) => advice.endsWith(end)) ?? "";
}

/** The parts of a target (see `Target`) that the next step depends on. */
interface Subject {
  /** The argument as typed. */
  argument: string;
  ids: readonly string[];
  /** Batches of the run that were not submitted. */
  unsent: number;
  run: { state: RunState } | null;
}

/** A list of more commands does not help. */
const MOST_COMMANDS = 5;

/**
 * The next step for batches or runs: finish the submission, wait, download, look at the failures, or open what is here.
 * Null if nothing is left to do.
 */
export function nextSteps(
  where: Whereabouts,
  targets: readonly Subject[],
  batches: readonly Batch[],
): string | null {
  const known = new Map(batches.map((batch) => [batch.id, batch]));
  const steps = targets.map(({ argument, ids, run }) => {
    const own = ids.flatMap((id) => known.get(id) ?? []);
    return { argument, step: stepOf(own, run !== null && isFetched(run.state)) };
  });
  const unfinished = targets.find(({ unsent }) => unsent > 0);
  if (unfinished !== undefined) return finishing(where, unfinished);
  const waiting = steps.filter(({ step }) => step === "wait");
  if (waiting.length > 0) return nextCommand(where, "wait", ...waiting.map(({ argument }) => argument));
  const loads = steps.filter(({ step }) => step === "download");
  if (loads.length > 0) {
    const commands = loads.map(({ argument }) => nextCommand(where, "download", argument));
    return [...commands.slice(0, MOST_COMMANDS), ...(commands.length > MOST_COMMANDS ? ["…"] : [])].join(
      "; ",
    );
  }
  const empty = steps.find(({ step }) => step === "items");
  if (empty !== undefined) return `to see why: ${nextCommand(where, "items", empty.argument)}`;
  const fetched = steps.find(({ step }) => step === "look");
  return fetched === undefined ? null : openStep(fetched.argument);
}

/** Whether all images were on disk when the directory was last used, but for those that failed. */
const isFetched = (state: RunState) => state.finished_at !== null && !isLacking(state);

function stepOf(
  batches: readonly Batch[],
  isFetched: boolean,
): "wait" | "download" | "items" | "look" | null {
  if (batches.some((batch) => !batch.isDone)) return "wait";
  const there = batches.filter((batch) => batch.status !== "output_deleted");
  if (there.some((batch) => batch.successCount > 0 || !batch.hasCounts))
    return isFetched ? "look" : "download";
  return there.length > 0 ? "items" : null;
}

/** The command that shows the images of runs, or image files. It asks no service. */
export function openStep(...paths: readonly string[]): string {
  return nextCommand({}, "open", ...paths);
}

export const ALL_HERE = "the images are all here";

/** A note that begins with the reason why the service does not know a batch. */
export function unknownNote({ message }: ImgbatchError, more: string): string {
  return `${message.replace(/^The/, "the").replace(/\.$/, "")}; ${more}`;
}

/** The advice for a run with missing images whose batches the service does not know. */
export function goingOnHere(where: Whereabouts, dir: string): string {
  const [lost, here] = [{ flag: "--include-lost" }, { flag: "--here" }] as const;
  const retry = nextCommand(where, "retry", lost, here, dir);
  return `to make only the missing images with this service, which is paid again if the other one still runs: ${retry}\n${OWNER_ADVICE}`;
}

/** The advice for a run whose submission was not finished. */
export function finishing(where: Whereabouts, { argument, run }: Pick<Subject, "argument" | "run">): string {
  return run !== null && lastRound(run.state) > 0
    ? nextCommand(where, "retry", argument)
    : `run the submit command of ${argument} again: nothing is paid twice`;
}

/** The options that select the service and the key. The next command needs the same ones. */
export type Whereabouts = Partial<Pick<GlobalOptions, "baseUrl" | "apiKeyFile" | "data" | "config">>;

/** A flag of a command line. A plain string is a name, which may look like a flag. */
export interface Flag {
  flag: `--${string}`;
}

/**
 * Writes the next command line, with its words quoted for a shell where needed: `imgbatch wait 'my images'`. A name that
 * begins with `-` is not read as an option.
 */
export function nextCommand(where: Whereabouts, ...words: readonly (string | Flag)[]): string {
  const { baseUrl, apiKeyFile, data, config } = where;
  const options = [
    // An address with user, query or fragment is refused anyway, and may hold a password.
    ...given({ flag: "--base-url" }, baseUrl === undefined || /[@?#]/.test(baseUrl) ? undefined : baseUrl),
    ...given({ flag: "--api-key-file" }, apiKeyFile),
    ...given({ flag: "--data" }, data),
    ...given({ flag: "--config" }, config),
  ];
  return [programName(), ...[...words, ...options].map(commandWord)].join(" ");
}

/** Writes the command that makes pictures again that a person does not want, from its flags with their values. */
export function remakeCommand(
  where: Whereabouts,
  shownDir: string,
  flags: Readonly<Record<string, string>>,
): string {
  const words = Object.entries(flags).flatMap(([flag, value]) =>
    [{ flag: flag as Flag["flag"] }, value].filter((word) => word !== ""),
  );
  return nextCommand(where, "retry", shownDir, ...words);
}

/** Writes a typed command line again with an option, or with another value of it. */
export function commandAgain(
  typed: readonly string[],
  option: Pick<OptionSpec, "flags">,
  value?: string,
): string {
  const added = value === undefined ? [flagIn(option)] : [flagIn(option), value];
  return typedCommand(beforeOthers(wordsWithout(typed, option), added));
}

/** Writes a typed command line again with these values of flags, and without the flags of no value. */
export function commandWith(
  typed: readonly string[],
  values: Readonly<Record<string, string | undefined>>,
): string {
  const kept = Object.keys(values).reduce<readonly string[]>(
    (words, flag) => wordsWithout(words, { flags: `${flag} <value>` }),
    typed,
  );
  const given = Object.entries(values).flatMap(([flag, value]) => (value === undefined ? [] : [flag, value]));
  return typedCommand(beforeOthers(kept, given));
}

/** Returns the words of a command line without an option, in whatever form it was typed. Words behind `--` are no options. */
export function wordsWithout(typed: readonly string[], option: Pick<OptionSpec, "flags">): string[] {
  const names = namesIn(option);
  const takesValue = option.flags.includes("<");
  const end = typed.indexOf("--");
  const isOption = (i: number) => i >= 0 && (end < 0 || i < end);
  const isNamed = (i: number) => isOption(i) && names.includes(typed[i] ?? "");
  const isJoined = (word: string) =>
    takesValue && names.some((name) => word.startsWith(name.startsWith("--") ? `${name}=` : name));
  return typed.filter(
    (word, i) => !isNamed(i) && !(takesValue && isNamed(i - 1)) && !(isOption(i) && isJoined(word)),
  );
}

/** Adds words to a command line, before those behind `--`. */
function beforeOthers(typed: readonly string[], added: readonly string[]): string[] {
  const end = typed.indexOf("--");
  return end < 0 ? [...typed, ...added] : [...typed.slice(0, end), ...added, ...typed.slice(end)];
}

/** Writes a command line again, without the name of the program in `typed`. */
export function typedCommand(typed: readonly string[]): string {
  return [programName(), ...typed.map(quoted)].join(" ");
}

/** No command line with such a word is repeated: the word, or its value, may be a secret. */
const MAY_BE_SECRET =
  /^--(?!api-key-(?:file|stdin)|idempotency-key).*(?:key|token|secret|password)|:\/\/.*@/is;

/** Writes a typed command line again with another word in place of a wrong one; null where that is not certain. */
function commandMeant(words: readonly string[], { typed, right }: Meant): string | null {
  const isName = typed.startsWith("--");
  const mended = words.map((word) => {
    if (word === typed) return right;
    if (isName && word.startsWith(`${typed}=`)) return `${right}${word.slice(typed.length)}`;
    return /^--[a-z-]+=/.test(word) && word.endsWith(`=${typed}`)
      ? `${word.slice(0, word.length - typed.length)}${right}`
      : word;
  });
  const changed = mended.filter((word, i) => word !== words[i]);
  return changed.length !== 1 || mayBeSecret(words) ? null : typedCommand(mended);
}

function mayBeSecret(words: readonly string[]): boolean {
  return words.some((word) => MAY_BE_SECRET.test(word) || holdsApiKey(word));
}

/** A lone `-` is standard input. */
function commandWord(word: string | Flag): string {
  if (typeof word !== "string") return word.flag;
  return word === "-" ? word : shellWord(word);
}

function given(flag: Flag, value: string | undefined): (string | Flag)[] {
  return value === undefined ? [] : [flag, value];
}

/** The default directory for the run of a prompt file: `prompts-images`; `imgbatch-images` for standard input. */
export function defaultRunDirectory(file: string): string {
  return file === "-" ? "imgbatch-images" : `${basename(file, extname(file))}-images`;
}
