import { cacheDirectory } from "../config/paths.ts";
import type { Config } from "../config/schema.ts";
import { ImgbatchError } from "../contract/errors.ts";
import type { ProviderEntry, UpstreamEntry } from "../contract/provider-entries.ts";
import { secretOf } from "../environment.ts";
import { type Clock, systemClock } from "../kernel/clock.ts";
import { programName } from "../kernel/command-line.ts";
import { formatUsd, multiplyToMicros } from "../kernel/money.ts";
import { modelFacts, type Preset, presetOf, priceOf } from "../providers/catalogue/catalogue.ts";
import type { CatalogueModel } from "../providers/catalogue/schema.ts";
import type { ListedModel } from "../providers/vendor-list.ts";
import type { CommandContext } from "./command.ts";
import { modelOption } from "./commands/shared-options.ts";
import { commandAgain } from "./output/next-step.ts";

type Surroundings = Pick<
  CommandContext,
  "global" | "options" | "cwd" | "typed" | "ask" | "output" | "signal"
>;

const DAY_MS = 86_400_000;
/** The days before the end of a model on which each run says so. */
const SOON_DAYS = 30;
/** Prices that were read longer ago are shown with their date. */
const OLD_DAYS = 90;

/** A model of the configuration beside the vendor's list. */
interface CheckedModel {
  id: string;
  /** Whether the vendor lists it; null without a list. */
  isOffered: boolean | null;
  /** The day of its end, the vendor's before ours; null when none is known. */
  retires: string | null;
  /** The model to use in its place; null when none is offered. */
  successor: CatalogueModel | null;
}

/** Returns the upstream's id of a model of the configuration; null if the entry does not serve it. */
export function upstreamIdOf(
  { models }: UpstreamEntry,
  { id, mapsTo = id }: Pick<Config["models"][number], "id" | "mapsTo">,
): string | null {
  if (!Array.isArray(models)) return Object.hasOwn(models, id) ? (models[id] ?? null) : null;
  return ["*", id, mapsTo].some((name) => models.includes(name)) ? mapsTo : null;
}

const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** Compares a model with a list. `list` is null when there is none: then its day decides whether it can be had. */
export async function compareModel(
  preset: Preset,
  { id, upstreamId }: { id: string; upstreamId: string },
  list: readonly ListedModel[] | null,
  nowMs: number,
): Promise<CheckedModel> {
  const { findListed } = await import("../providers/vendor-list.ts");
  const facts = modelFacts(preset.name, upstreamId);
  const listed = list === null ? undefined : findListed(list, upstreamId);
  const isThere = ({ id: other, upstreamId: theirs = other, retires, jobPrice }: CatalogueModel) =>
    theirs !== upstreamId &&
    (list === null
      ? retires === undefined || retires > dayOf(nowMs)
      : findListed(list, theirs) !== undefined) &&
    !(preset.isOfJobs && jobPrice === null);
  const named = preset.models.find((model) => model.id === facts?.successor && isThere(model));
  return {
    id,
    isOffered: list === null ? null : listed !== undefined,
    retires: listed?.retires ?? facts?.retires ?? null,
    successor: named ?? preset.models.find((model) => priceOf(model) !== null && isThere(model)) ?? null,
  };
}

/** Reads the list of an entry; null where there is none to read. `isFresh`: see `readVendorList`. */
export async function vendorListOf(
  entry: UpstreamEntry,
  signal: AbortSignal,
  isFresh: boolean,
  clock: Clock = systemClock,
): Promise<readonly ListedModel[] | null> {
  const { hasVendorList, readVendorList } = await import("../providers/vendor-list.ts");
  const source = { entry, signal, cacheDirectory: cacheDirectory(), deps: { clock, secret: secretOf } };
  return hasVendorList(source) ? readVendorList(source, { isFresh }) : null;
}

/** A configured model that its vendor does not offer, or ends soon. */
export interface ModelTrouble {
  model: string;
  isOffered: boolean;
  /** Whether runs use it that name no model. */
  isDefault: boolean;
  message: string;
  successor: string | null;
}

/**
 * Compares the models that an entry serves with the vendor's list. Models that only the preset brings along may have ended
 * on the day that is known of them, or have no price to be used with. Nothing is returned when there is no list to be had.
 */
export async function modelTroubles(
  { models }: Pick<Config, "models">,
  entry: ProviderEntry,
  signal: AbortSignal,
): Promise<ModelTrouble[]> {
  const preset = presetOf(entry);
  if (entry.type === "procedural" || entry.type === "replay" || preset === undefined) return [];
  const list = await vendorListOf(entry, signal, true).catch(() => null);
  signal.throwIfAborted();
  if (list === null) return [];
  const today = dayOf(Date.now());
  const isFromPreset = preset.models.every(({ id }) => models.some((model) => model.id === id));
  const troubles = await Promise.all(
    models.map(async (model, at): Promise<ModelTrouble[]> => {
      const upstreamId = upstreamIdOf(entry, model);
      if (upstreamId === null || (preset.isOfJobs && model.jobPrice === null)) return [];
      const checked = await compareModel(preset, { id: model.id, upstreamId }, list, Date.now());
      const { isOffered, retires } = checked;
      const isOld = retires !== null && retires <= today;
      const isSoon = retires !== null && Date.parse(retires) - Date.now() <= SOON_DAYS * DAY_MS;
      const isExpected = isFromPreset && at > 0 && (isOld || Object.keys(model.prices).length === 0);
      if (isOffered ? !isSoon : isExpected) return [];
      const ends = retires === null ? "" : `${isOld ? "ended" : "ends"} on ${retires}`;
      return [
        {
          model: model.id,
          isOffered: isOffered === true,
          isDefault: at === 0,
          message: isOffered
            ? `${model.id} ${ends}`
            : `${model.id} is not offered any more${ends && ` (it ${ends})`}`,
          successor: checked.successor?.id ?? null,
        },
      ];
    }),
  );
  return troubles.flat();
}

/** The vendor does not offer the model of a run any more. */
class ModelGone extends ImgbatchError {
  readonly successor: string | null;

  constructor(message: string, successor: string | null, advice: string) {
    super("USAGE", message, { param: "--model", advice });
    this.successor = successor;
  }
}

/**
 * Asks the vendor of a paid upstream, before the user agrees to pay, whether it still offers the model of a run. Throws
 * `ModelGone` if not. `isChosen`: an option can choose another model, since no line names it. A list that cannot be read is a note. Returns the day of the model's price if it is old, else null.
 */
export async function requireOffered(
  context: Surroundings,
  model: string,
  upstream: string | null,
  isChosen = true,
): Promise<string | null> {
  const { loadConfig } = await import("../config/load.ts");
  const { configChoice } = await import("./connect/service-config.ts");
  const choice = configChoice(context);
  const config = loadConfig({ ...choice, upstream: upstream ?? choice.upstream ?? null });
  const configured = config.models.find(({ id }) => id === model) ?? { id: model };
  const found = config.providers.flatMap((entry) => {
    if (entry.type === "procedural" || entry.type === "replay") return [];
    const upstreamId = upstreamIdOf(entry, configured);
    return upstreamId === null ? [] : [{ entry, upstreamId }];
  })[0];
  const nowMs = Date.now();
  const asOf = "asOf" in configured ? configured.asOf : undefined;
  const old = asOf !== undefined && nowMs - Date.parse(asOf) > OLD_DAYS * DAY_MS ? asOf : null;
  const preset = found && presetOf(found.entry);
  if (found === undefined || preset === undefined) return old;
  const checked = await checkNow(context, preset, { ...found, id: model });
  const { retires, successor } = checked;
  const today = dayOf(nowMs);
  const hasEnded = retires !== null && retires <= today;
  const { name } = found.entry;
  if (checked.isOffered === false || (checked.isOffered === null && hasEnded))
    throw goneError(context, { preset, name, checked, today, isChosen });
  const instead = successor === null ? "" : `; in its place: ${successor.id}`;
  if (hasEnded)
    context.output.warn(`${name} still offers ${model}, which was to end on ${retires}${instead}`);
  else if (retires !== null && Date.parse(retires) - nowMs <= SOON_DAYS * DAY_MS)
    context.output.warn(`${name} ends ${model} on ${retires}${instead}`);
  return old;
}

async function checkNow(
  { output, signal }: Surroundings,
  preset: Preset,
  { entry, ...model }: { entry: UpstreamEntry; id: string; upstreamId: string },
): Promise<CheckedModel> {
  try {
    const checked = await compareModel(preset, model, await vendorListOf(entry, signal, false), Date.now());
    // Within the hour a model may have come back.
    if (checked.isOffered !== false) return checked;
    return await compareModel(preset, model, await vendorListOf(entry, signal, true), Date.now());
  } catch (error) {
    signal.throwIfAborted();
    if ((error as Error).name !== "ProviderError") throw error;
    output.note(
      `the list of models could not be read, so it is not known whether ${model.id} is still offered: ${(error as Error).message}`,
    );
    return compareModel(preset, model, null, Date.now());
  }
}

function goneError(
  { typed }: Surroundings,
  {
    preset,
    name,
    checked,
    today,
    isChosen,
  }: { preset: Preset; name: string; checked: CheckedModel; today: string; isChosen: boolean },
): ModelGone {
  const { id, retires, successor } = checked;
  const ended = retires !== null && retires <= today ? ` (it ended on ${retires})` : "";
  const message = `${name} does not offer ${id} any more${ended}. Nothing was sent.`;
  if (successor === null)
    return new ModelGone(message, null, `${programName()} models --upstream NAME shows what it offers`);
  const facts = modelFacts(preset.name, id);
  const [before, after] = [facts, successor].map((model) => model && listPrice(preset, model));
  const prices = `${after ?? "no known price"} an image${before ? ` instead of ${before}` : ""}`;
  const use = `use ${successor.id} (${prices})`;
  if (!isChosen) return new ModelGone(message, null, `${use} in the lines that name ${id}`);
  return new ModelGone(message, successor.id, `${use}: ${commandAgain(typed, modelOption, successor.id)}`);
}

/** The price of an image at 1K as the preset's upstream charges it; null when it is not known. */
function listPrice({ isOfJobs }: Preset, model: CatalogueModel): string | null {
  const usd = priceOf(model);
  return usd === null ? null : formatUsd(multiplyToMicros([usd, isOfJobs ? (model.jobPrice ?? 1) : 1]));
}

/**
 * Runs the work with the wanted model. If the vendor does not offer it any more, asks on a terminal whether to use the
 * successor, and runs the work with that one. `isBegun`: its directory has a run, which keeps its model.
 */
export async function orWithSuccessor<T>(
  { ask, signal, output }: Pick<CommandContext, "ask" | "signal" | "output">,
  work: (successor: string | null) => Promise<T>,
  isBegun = false,
): Promise<T> {
  try {
    return await work(null);
  } catch (error) {
    if (!(error instanceof ModelGone) || error.successor === null) throw error;
    if (isBegun) {
      const advice = `the directory of a run keeps its model: use --model ${error.successor} with another --output of \`${programName()} submit\``;
      throw new ModelGone(error.message, error.successor, advice);
    }
    if (ask === null) throw error;
    output.settle();
    const use = error.advice?.split(`: ${programName()} `)[0];
    const answer = await ask(`${error.message} ${use?.replace(/^use/, "Use")} instead? [y/N] `, signal);
    if (!/^y(es)?$/i.test(answer)) throw error;
    return work(error.successor);
  }
}
