import { IN_REPLAY_DIRECTORY } from "../../contract/batch-api.ts";
import { EXIT_CODES, type ImgbatchError } from "../../contract/errors.ts";
import { isOutOfCapacity } from "../../http/retries.ts";
import { programName, shellWord } from "../../kernel/command-line.ts";
import type { FileLine } from "../../prompts/problems.ts";
import { findPreset } from "../../providers/catalogue/catalogue.ts";
import { RETRY_FILE, type ResultLine } from "../../runs/directory/results.ts";
import { repairsOf, stands } from "../../runs/standing.ts";
import {
  adviceByKind,
  type Flag,
  goingOnHere,
  NO_CAPACITY_ADVICE,
  nextCommand,
  openStep,
  type Whereabouts,
  whenBilled,
} from "./next-step.ts";

/** An ended run, as far as its next step depends on it. */
export interface EndedSteps {
  shownDir: string;
  lines: readonly ResultLine[];
  hasRetry: boolean;
  /** The command that makes its failed images again; null: none, because the prompts are not here. */
  remake: "retry" | "generate" | null;
  /** Null: not known. */
  model: string | null;
  upstream: string | null;
  /** Where the prompts of failed images stand, as far as that is known. */
  failedAt?: readonly FileLine[];
  /** The step that makes the images of edited prompts. Default: none, where the prompt files are not known. */
  updateStep?: string | undefined;
  /** The error that ended the run before every image was asked for. Default: null, none did. */
  stop?: ImgbatchError | null;
  /** An error of one of its images that was not about the prompt. Default: null, none. */
  failure?: ImgbatchError | null;
}

/**
 * What to do about what ended a run too early, if anything did; else the ways to get the images that are not here, the cheapest
 * first; else the command that shows them.
 */
export function nextOfRun(run: EndedSteps & { exitCode: number }, where: Whereabouts): string {
  const { stop = null, exitCode } = run;
  const mayPass = run.remake === "generate" && exitCode === EXIT_CODES.temporary.code;
  if (stop !== null || mayPass) return nextOfStop(stop ?? run.failure ?? null, { stop, exitCode }, where);
  const [cheapest, ...others] = repairsOf(run.lines).flatMap(({ kind }) => STEPS[kind](run, where) ?? []);
  return cheapest === undefined ? openStep(run.shownDir) : [...others, cheapest].join("\n");
}

const ONLY_MISSING = "run the same command again: it makes only what is missing";
/** After these exit codes, something has to be changed before the rest can be made. */
const TO_CHANGE = [EXIT_CODES.auth, EXIT_CODES.money, EXIT_CODES.usage, EXIT_CODES.saving];

/** `error`: what stopped the run, or one of its errors if all of them may pass; null when it is not known. */
function nextOfStop(
  error: ImgbatchError | null,
  { stop, exitCode }: { stop: ImgbatchError | null; exitCode: number },
  where: Whereabouts,
): string {
  if (stop !== null && isOutOfCapacity(stop)) return NO_CAPACITY_ADVICE;
  if (stop?.code === "PROVIDER_UNREACHABLE" && stop.advice !== undefined) return stop.advice;
  const byKind = error === null ? null : adviceByKind(error, { where, paysAgain: true }, ONLY_MISSING);
  if (byKind !== null) return byKind;
  if (TO_CHANGE.some(({ code }) => code === exitCode)) return `fix that, then ${ONLY_MISSING}`;
  return error === null ? ONLY_MISSING : `${ONLY_MISSING}${whenBilled(error.code)}`;
}

const submittedElsewhere = () =>
  `lost images can only be made and paid again: run \`${programName()} retry --include-lost\` with the directory that submitted them, or submit their prompts again`;

type Step = (run: EndedSteps, where: Whereabouts) => string | null;

/** The step for each repair. Null if the prompts that it needs are not here. */
const STEPS: Readonly<Record<ReturnType<typeof repairsOf>[number]["kind"], Step>> = {
  fetch: ({ lines }) =>
    lines.some((line) => stands(line, "lost"))
      ? "run the same command again: it fetches what is missing"
      : "run the same command again, later: nothing is paid twice",
  retryHere: ({ remake, shownDir }, where) =>
    remake === null ? submittedElsewhere() : goingOnHere(where, shownDir),
  retryLost: ({ lines, remake, shownDir }, where) => {
    if (remake === null) return submittedElsewhere();
    const retry = nextCommand(where, "retry", { flag: "--include-lost" }, shownDir);
    const isUnknown = lines.some((line) => stands(line, "unknown"));
    return `to make the ${isUnknown ? "images of lost answers" : "lost images"} again, which is paid again: ${retry}`;
  },
  retry: (run, where) => {
    const { lines, hasRetry, remake, shownDir } = run;
    if (!hasRetry) return null;
    if (remake === "generate") return recordStep(run) ?? lookThenRemake(run, where);
    const retry = nextCommand(where, "retry", shownDir);
    if (!lines.some((line) => stands(line, "unknown", "later", "lost"))) return retry;
    return remake === null ? null : `to make the failed images: ${retry}`;
  },
  edit: (run, where) => {
    const { hasRetry, remake, shownDir, updateStep } = run;
    if (!hasRetry) return null;
    const record = recordStep(run);
    if (record !== null) return record;
    if (remake === "generate") return lookThenRemake(run, where);
    const places = placesOfPrompts(run);
    if (updateStep !== undefined && places !== null)
      return `change what was refused in ${places}, then ${updateStep}`;
    return `change the prompts that were refused in ${shellWord(`${shownDir}/${RETRY_FILE}`)}, then ${remakeElsewhere(run, where)}`;
  },
};

const RECORD = "exec --replay DIR --record --upstream NAME --max-cost USD --";

/** The step for images that are not recorded, where that is how they failed. Other prompts would not help. */
function recordStep({ lines, remake, shownDir }: EndedSteps): string | null {
  const isRecordable = lines.some(
    ({ error }) => error?.code.endsWith("INVALID_ARGUMENT") && error.message.includes(IN_REPLAY_DIRECTORY),
  );
  if (!isRecordable || remake === null) return null;
  const command =
    remake === "generate"
      ? "and the same command"
      : nextCommand({}, "retry", { flag: "--include-refused" }, shownDir);
  return `to record what the upstream makes of them: ${programName()} ${RECORD} ${command}`;
}

function lookThenRemake(run: EndedSteps, where: Whereabouts): string {
  return `look at the failed prompts in ${shellWord(`${run.shownDir}/${RETRY_FILE}`)}, then ${remakeElsewhere(run, where)}`;
}

/**
 * The command that makes the failed prompts of a run in a new directory. That remembers neither the upstream of the run nor
 * its model, unless that is the upstream's first. Ratio and size stand in the file.
 */
export function remakeElsewhere(
  { shownDir, remake, model, upstream }: Pick<EndedSteps, "shownDir" | "remake" | "model" | "upstream">,
  where: Whereabouts = {},
): string {
  const file = `${shownDir}/${RETRY_FILE}`;
  const command = remake === "generate" ? ["generate", { flag: "--file" } as const] : ["submit"];
  const isUsual = model === null || model === findPreset(upstream ?? undefined)?.models[0]?.id;
  const maker: (string | Flag)[] = [
    ...(isUsual ? [] : [{ flag: "--model" } as const, model]),
    ...(upstream === null ? [] : [{ flag: "--upstream" } as const, upstream]),
  ];
  return nextCommand(where, ...command, file, { flag: "--output" }, `${shownDir}-retry`, ...maker);
}

const MOST_PLACES = 5;

/** The prompts that failed, by file: `p.txt (lines 4, 7)`. Null where a person cannot change one. */
function placesOfPrompts({ failedAt = [], lines }: EndedSteps): string | null {
  const isKnown = failedAt.length === lines.filter((line) => stands(line, "failed", "refused")).length;
  if (!isKnown || failedAt.some(({ file }) => file === "<stdin>")) return null;
  const places = [...new Set(failedAt.map(({ file }) => file))].map((file) => {
    const numbers = [...new Set(failedAt.filter((at) => at.file === file).map(({ line }) => line))];
    const shown = numbers.slice(0, MOST_PLACES).join(", ");
    const more = numbers.length > MOST_PLACES ? ", …" : "";
    return `${shellWord(file)} (${numbers.length === 1 ? "line" : "lines"} ${shown}${more})`;
  });
  return places.length > MOST_PLACES ? null : places.join(", ");
}
