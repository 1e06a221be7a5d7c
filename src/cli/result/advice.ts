import { type ErrorCode, errorEntry, type ImgbatchError } from "../../contract/errors.ts";
import type { ExitName } from "../../contract/exit-codes.ts";
import { isOutOfCapacity } from "../../http/retry-policy.ts";
import { PAID_AGAIN } from "./advice-when-billed.ts";
import { defaultRunDirectory, nextCommand, type Whereabouts } from "./next-command.ts";

/** What was typed, as far as an advice can repeat it. */
export interface Typed {
  /** The command, such as `admin keys list`; empty when none was understood. */
  path: string;
  arguments: readonly string[];
  options: Readonly<Record<string, unknown>>;
  where: Whereabouts;
  /** The command makes and bills again when it is run again. */
  paysAgain: boolean;
  /** The command goes on where an earlier call of it stopped. */
  resumes: boolean;
}

/** What was typed when nothing of it was understood. */
export const NOTHING_TYPED: Typed = {
  path: "",
  arguments: [],
  options: {},
  where: {},
  paysAgain: false,
  resumes: false,
};

type Advice = string | ((typed: Typed) => string);

/** After an error that says that no upstream account is usable. */
export const NO_CAPACITY_ADVICE =
  "the service has no capacity now, and asking again at once makes it worse: wait some minutes, then run the same command again";

/** After an error that means that a run belongs to another service or key. */
export const OWNER_ADVICE = "use the key and the --base-url that the run was made with";

const again: Advice = ({ resumes }) =>
  resumes
    ? "run the same command again: it goes on where it stopped, and nothing is paid twice"
    : "run the same command again";
const key: Advice = ({ where }) =>
  `give a key in IMGBATCH_API_KEY or with --api-key-file, and check --base-url; to know more: ${nextCommand(where, "doctor")}`;
const allowed: Advice = ({ where }) =>
  `ask whoever runs the service to allow it for this key; what it may use: ${nextCommand(where, "models")}`;
const listed: Advice = (typed) => {
  const { path, where } = typed;
  return path === "submit"
    ? say(anew, typed)
    : `${nextCommand(where, "list")} (has the batches of this key; only the key that made a batch sees it)`;
};
/** A key of the caller's own and `--new` do not go together. */
const anew: Advice = ({ options }) =>
  options.idempotencyKey === undefined
    ? "add --new to generate again with a fresh key"
    : "put --new in the place of --idempotency-key, to generate with a fresh key; or another key and another directory in --output";
const ofItems =
  (what: string): Advice =>
  (typed) =>
    `${about(typed, "items")} (${what})`;
const elsewhere: Advice = ({ path }) =>
  ["submit", "download", "generate"].includes(path)
    ? "run the same command with another directory in --output"
    : OWNER_ADVICE;

/** A command about the same batch or run. */
function about(typed: Typed, command: string): string {
  return nextCommand(typed.where, command, ...subjectOf(typed));
}

/** The batches or the run that a command is about. */
function subjectOf({ path, arguments: words, options }: Typed): readonly string[] {
  const { output } = options;
  if (path === "submit") return [typeof output === "string" ? output : defaultRunDirectory(words[0] ?? "-")];
  return ["wait", "watch", "status"].includes(path) ? words : words.slice(0, 1);
}

/** What to do after an error, for people. */
const ADVICE: Partial<Record<ErrorCode, Advice>> = {
  USAGE: ({ path }) => `imgbatch ${path === "" ? "" : `${path} `}--help`,
  INVALID_INPUT: "fix the lines above and run the same command again",
  INVALID_CONFIG: "mend the file, then run the same command again; `imgbatch schema config` prints every key",
  NETWORK: (typed) => `${say(again, typed)}; what is wrong: ${nextCommand(typed.where, "doctor")}`,
  BAD_RESPONSE: "check --base-url; if it is right, run the same command again",
  TIMEOUT: (typed) => `${about(typed, "wait")} (or the same command again)`,
  BATCH_IMAGE_NOT_READY: (typed) => about(typed, "wait"),
  BATCH_IMAGE_OUTPUT_DELETE_NOT_READY: (typed) => `${about(typed, "wait")} (or ${about(typed, "cancel")})`,
  BATCH_IMAGE_RECORD_DELETE_NOT_READY: (typed) => `${about(typed, "wait")} (or ${about(typed, "cancel")})`,
  BATCH_IMAGE_DISABLED: allowed,
  BATCH_IMAGE_GROUP_DISABLED: allowed,
  REALTIME_GROUP_NOT_NATIVE: allowed,
  HTTP_403: allowed,
  BATCH_IMAGE_IDEMPOTENCY_CONFLICT: (typed) =>
    typed.path === "submit" ? say(anew, typed) : about(typed, "status"),
  BATCH_IMAGE_OUTPUT_DELETED: (typed) =>
    typed.path === "submit"
      ? say(anew, typed)
      : "run the command that submitted it again, with --new: that is paid again",
  BATCH_IMAGE_NOT_FOUND: listed,
  BATCH_IMAGE_ITEM_NOT_FOUND: ofItems("lists what there is"),
  BATCH_IMAGE_ITEM_FAILED: ofItems("says why"),
  BATCH_IMAGE_ITEM_IMAGE_INDEX_OUT_OF_RANGE: ofItems("says how many images each item has"),
  BATCH_IMAGE_ZIP_TOO_MANY_ITEMS: (typed) => `${about(typed, "download")} (without --zip there is no limit)`,
  BATCH_IMAGE_DOWNLOAD_TOO_LARGE: (typed) => `${about(typed, "download")} (without --zip there is no limit)`,
  BATCH_IMAGE_RESULT_MISSING:
    "run the same command again; if it stays so, `imgbatch submit --new` makes all of it anew",
  BATCH_IMAGE_INVALID_MODEL: ({ where }) => `${nextCommand(where, "models")} (lists what this key can use)`,
  REALTIME_MODEL_NOT_FOUND: ({ where }) =>
    `${nextCommand(where, "models", { flag: "--realtime" })} (lists what this key can use)`,
  DATA_DIRECTORY_IN_USE: "stop the other process, or choose another directory with --data",
  DIRECTORY_CONFLICT: elsewhere,
  DIRECTORY_IN_USE: "wait until the other one has ended, then run the same command again",
  ADDRESS_IN_USE: "stop that program, or run the same command with --port 0, which takes a free port",
  COST_LIMIT: "raise --max-cost, or submit fewer images",
  STORAGE_FAILED:
    "look after the disk, then start again: what was accepted is kept, and goes on; `imgbatch admin check` verifies the data",
  SAVE_FAILED:
    "free the disk or fix the permission, then run the same command again: only what is missing is fetched",
  VERIFY_FAILED: "run the same command again: only what is missing or damaged is fetched",
};

/** Where the code has no advice of its own. */
const BY_EXIT: Record<ExitName, Advice> = {
  ok: again,
  internal: again,
  usage: "change what the message says, then run the same command again; nothing was made",
  auth: key,
  someFailed: (typed) => about(typed, "retry"),
  noImages: ofItems("says why"),
  conflict: (typed) => about(typed, "status"),
  temporary: again,
  money: "top up the account, or ask for fewer images",
  saving: "free the disk or fix the permission, then run the same command again",
  gone: listed,
  timeout: (typed) => about(typed, "wait"),
  interrupted: again,
  terminated: again,
};

/** What to type after an error: the error's own advice, else what fits its code and the command. */
export function adviceFor(error: ImgbatchError, typed: Typed): string {
  if (error.advice !== undefined) return error.advice;
  if (isOutOfCapacity(error)) return NO_CAPACITY_ADVICE;
  const { code } = error;
  const advice = (typed.paysAgain ? PAID_AGAIN[code] : undefined) ?? ADVICE[code];
  return say(advice ?? BY_EXIT[errorEntry(code).exit], typed);
}

function say(advice: Advice, typed: Typed): string {
  return typeof advice === "string" ? advice : advice(typed);
}
