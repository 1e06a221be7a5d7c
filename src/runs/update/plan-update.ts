import { ImgbatchError } from "../../contract/errors.ts";
import { counted } from "../../kernel/text.ts";
import { formatProblem } from "../../prompts/problems.ts";
import { mapRunInput } from "../directory/input-file.ts";
import type { RunBatch, RunState } from "../directory/run-state-schema.ts";
import type { Plan, PlannedItem } from "../plan/plan.ts";
import { imagesOf, type Match, matchItems, toOldItem } from "./match-items.ts";

/** The changes from a run to its edited prompts. Nothing is written or sent yet. */
export interface UpdatePlan extends Match {
  /** The images to make: those of changed and added prompts, and those of an earlier update that the service refused. */
  images: string[];
  /** Settings that decide the images and are others now, in words. */
  settings: string[];
}

type Changes = Match & Pick<UpdatePlan, "settings">;

/** Compares a run with edited prompts. Throws `DIRECTORY_CONFLICT` if its input is damaged or unknown. */
export async function planUpdate(dir: string, state: RunState, plan: Plan): Promise<UpdatePlan> {
  const settings = otherSettings(state, plan);
  const old = await mapRunInput(dir, toOldItem);
  const match = matchItems(old, plan.request.items, { isSameRequest: settings.length === 0 });
  const { keptImages } = match;
  const refused = state.batches.filter(isRefused).flatMap(({ retried = [] }) => retried);
  const made = new Set([
    ...[...match.changed, ...match.added].flatMap(imagesOf).filter((id) => !keptImages.has(id)),
    ...refused.filter((id) => keptImages.has(id)),
  ]);
  const images = match.items.flatMap(imagesOf).filter((id) => made.has(id));
  return { ...match, images, settings };
}

/** Whether a batch of an update was refused: no batch was made, and the next update plans its images again. */
export function isRefused({ refused }: RunBatch): boolean {
  return refused === true;
}

/** Says how the settings that decide the images differ: `the model is a, not b`. */
function otherSettings({ request }: RunState, { request: wanted }: Plan): string[] {
  if (request === null) return ["the run was not submitted here"];
  const isReal = request.images === "real";
  const drawn = ["an upstream made its images, which would be drawn now"];
  const real = ["its images were drawn, and an upstream would make them now"];
  return [
    ...(request.model === wanted.model ? [] : [`the model was ${request.model}, not ${wanted.model}`]),
    ...(request.response_mime_type === wanted.mimeType
      ? []
      : [`the type was ${request.response_mime_type}, not ${wanted.mimeType}`]),
    ...(isReal === (wanted.isReal ?? false) ? [] : isReal ? drawn : real),
  ];
}

/** Describes the changes: `2 prompts changed, 1 added, 1 removed; the model is the same`. */
export function describeChanges(update: Changes): string {
  const renamed = update.renamed.length;
  const again = `${renamed} of the added ${renamed === 1 ? "prompts is a removed one with another id, whose images are" : "prompts are removed ones with other ids, whose images are"} made again`;
  return renamed === 0 ? countsOf(update) : `${countsOf(update)}; ${again}`;
}

function countsOf({ kept, changed, added, removed, settings }: Changes): string {
  const counts = [
    [changed.length, "changed"],
    [added.length, "added"],
    [removed.length, "removed"],
  ].filter(([count]) => count !== 0);
  const [first, ...others] = counts.map(
    ([count, verb], i) => `${i === 0 ? counted(Number(count), "prompt") : count} ${verb}`,
  );
  if (first === undefined)
    return kept.length === 0 ? "no prompt is the same" : "the prompts are the same, other options are not";
  if (settings.length > 0) return `${[first, ...others].join(", ")}; ${settings.join("; ")}`;
  return `${[first, ...others].join(", ")}; the model is the same`;
}

/** The longest list of changed prompts that helps. */
const MOST_LISTED = 20;

/** The error for a directory whose run had other prompts or settings. `advise` names the command that makes these images. */
export function changedError(
  shownDir: string,
  update: UpdatePlan,
  advise: (images: number) => string,
): ImgbatchError {
  const message = `${shownDir} belongs to a run with other prompts or options: ${describeChanges(update)}.`;
  const other = "name another directory with --output to make all images there";
  const advice = update.keptImages.size === 0 ? other : `${advise(update.images.length)}; or ${other}`;
  return new ImgbatchError("DIRECTORY_CONFLICT", message, { details: changeLines(update), advice });
}

/** Returns a line for each prompt that differs, up to a number that helps. */
export function changeLines(update: Match): string[] {
  const lines = [
    ...update.changed.map((item) => lineOf(item, "changed")),
    ...update.added.map((item) => lineOf(item, "added")),
    ...update.removed.map(({ id }) => `${id}: removed`),
  ];
  const more = lines.length - MOST_LISTED;
  return more > 0 ? [...lines.slice(0, MOST_LISTED), `and ${more} more`] : lines;
}

function lineOf({ fileLine, customId }: PlannedItem, what: string): string {
  return formatProblem({ ...fileLine, field: customId, message: what });
}
