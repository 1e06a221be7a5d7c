import { join } from "node:path";
import type { Batch } from "../client/answers.ts";
import { shellWord } from "../kernel/command-line.ts";
import { counted } from "../kernel/text.ts";
import {
  type CollectOptions,
  collectRun,
  EarlyImages,
  type EarlyOptions,
  type RunOutcome,
} from "./collect-run.ts";
import type { RunInput } from "./directory/input.ts";
import type { ResultLine } from "./directory/results.ts";
import { retryIds, supersededIn } from "./directory/run-state.ts";
import type { RunState } from "./directory/run-state-schema.ts";
import { GALLERY_FILE } from "./reports/gallery.ts";
import type { StartedRun } from "./send.ts";
import { awaitBatches } from "./wait.ts";

/**
 * How a run gets its images: in batches that a service works on (`inBatches`), or each with a request of its own (`direct`).
 * Everything else about a run is the same: its directory, its lock, its results and reports, how it is judged, and what to do
 * next.
 */
export interface Transport {
  /**
   * Asks for the images that are not here. The key of each request is on disk before the request leaves. Throws what keeps the
   * run from beginning, such as a refused consent.
   */
  send(): Promise<StartedRun>;
  /** Waits until nothing is under way. Meanwhile images are saved as they are made; `onSaved` gets all results so far. */
  untilDone(started: StartedRun, onSaved: (soFar: SoFar) => void): Promise<DoneRun>;
  /** Brings what was made and is not here into the directory, and writes the results. */
  fetch(done: DoneRun): Promise<RunOutcome>;
}

/** What is known of a run that is under way: its results so far, in the order of the input. */
export interface SoFar {
  state: RunState;
  lines: readonly ResultLine[];
  input: RunInput;
}

/** A run of which nothing is under way any more. */
interface DoneRun extends StartedRun {
  /** The ids of the images that are saved already. Default: none. */
  early?: ReadonlySet<string>;
}

interface BatchOptions extends Omit<CollectOptions, "batches" | "state" | "found" | "early"> {
  /** The directory for messages. */
  shownDir: string;
  /** The typed time between two polls. Default: as the service asks. */
  intervalMs: number | undefined;
}

/** Makes the images of a run in batches. `send` makes the batches that are missing, or finds those that an earlier command made. */
export function inBatches(options: BatchOptions, send: Transport["send"]): Transport {
  const { service, clock, reporter, signal, intervalMs, keepZip } = options;
  return {
    send,
    untilDone: async (started, onSaved) => {
      const { state, batches } = started;
      const retries = new Set(retryIds(state));
      const superseded = new Map(
        state.batches.map(({ id, round }) => [id ?? "", supersededIn(state, round).size]),
      );
      const polling = { service, clock, random: Math.random, intervalMs, signal, reporter };
      const wait = (onLook?: (states: readonly Batch[]) => void) =>
        awaitBatches(batches, { ...polling, retries, superseded, onLook });
      if (keepZip) return { ...started, batches: await wait() };
      const { dir, shownDir } = options;
      return {
        ...started,
        ...(await savingEarly(options, [{ dir, shownDir, state, isLocked: true, onSaved }], wait)),
      };
    },
    fetch: (done) => collectRun({ ...options, ...done }),
  };
}

/** A run whose batches are awaited. */
interface RunUnderWay extends Pick<EarlyOptions, "dir" | "state" | "isLocked"> {
  /** The directory for messages. */
  shownDir: string;
  onSaved: (soFar: SoFar) => void;
}

/**
 * Waits for batches with `wait`, and meanwhile saves their images in the directories of their runs. Returns the batches, and
 * the ids of the images that are saved.
 */
export async function savingEarly(
  { service, clock, reporter, signal }: Pick<EarlyOptions, "service" | "clock" | "reporter" | "signal">,
  runs: readonly RunUnderWay[],
  wait: (onLook: (states: readonly Batch[]) => void) => Promise<Batch[]>,
): Promise<{ batches: Batch[]; early: ReadonlySet<string> }> {
  const savers = runs.map((run) => {
    const { state } = run;
    const onSaved: EarlyOptions["onSaved"] = (lines, input) => run.onSaved({ state, lines, input });
    const images = new EarlyImages({ ...run, service, clock, reporter, signal, onSaved });
    return { ...run, images, ids: new Set(state.batches.map(({ id }) => id)) };
  });
  const onLook = (states: readonly Batch[]) => {
    for (const { ids, images } of savers) images.notice(states.filter(({ id }) => ids.has(id)));
  };
  const early = new Set<string>();
  try {
    const batches = await wait(onLook);
    for (const { images } of savers) for (const id of await images.end()) early.add(id);
    return { batches, early };
  } catch (error) {
    for (const { images, shownDir, isLocked } of savers) {
      const { size } = await images.leave();
      if (!isLocked || size === 0) continue;
      const page = shellWord(join(shownDir, GALLERY_FILE));
      reporter.note(`${counted(size, "image")} on disk so far: ${page}`);
    }
    throw error;
  }
}
