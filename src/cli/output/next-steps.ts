import type { Batch } from "../../client/answers.ts";
import type { ImgbatchError } from "../../contract/errors.ts";
import { isLacking, lastRound } from "../../runs/directory/run-state.ts";
import type { RunState } from "../../runs/directory/run-state-schema.ts";
import { shellWord } from "../../runs/reports/run-report.ts";
import { OWNER_ADVICE } from "./advice.ts";
import { nextCommand, type Whereabouts } from "./next-command.ts";

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
 * The next step for batches or runs: finish the submission, wait, download, or look at the failures or at what is here.
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
  if (empty !== undefined) return `${nextCommand(where, "items", empty.argument)} (says why)`;
  const fetched = steps.find(({ step }) => step === "look");
  return fetched === undefined ? null : `look into ${shellWord(fetched.argument)}`;
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

/** The advice to look at files of a run's directory. */
export function lookInto(dir: string, ...names: readonly string[]): string {
  return `look into ${names.map((name) => shellWord(`${dir}/${name}`)).join(", ")}`;
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
  return `${OWNER_ADVICE}; or ${retry} makes only the missing images with this service, which is paid again if the other one still runs`;
}

/** The advice for a run whose submission was not finished. */
export function finishing(where: Whereabouts, { argument, run }: Pick<Subject, "argument" | "run">): string {
  return run !== null && lastRound(run.state) > 0
    ? nextCommand(where, "retry", argument)
    : `run the submit command of ${argument} again: nothing is paid twice`;
}
