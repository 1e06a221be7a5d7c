import type { ListedModel } from "../../client/answers.ts";
import { listModels } from "../../client/batches.ts";
import { listRealtimeModels, type RealtimeModel } from "../../client/realtime.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { referenceLimitByName } from "../../contract/limits.ts";
import type { Http } from "../../http/http.ts";
import { counted } from "../../kernel/text.ts";
import { Problems } from "../../prompts/problems.ts";
import type { PromptItem } from "./prompt-files.ts";

export interface ChosenModel {
  id: string;
  /** The price of one image. Null when the service does not say. */
  imageCostMicroUsd: number | null;
  /** The amount that is held for one image. Null when the service does not say. */
  imageHoldMicroUsd: number | null;
  /** Whether the service says that its images cost real money. */
  isPaid: boolean;
  /** Whether the service says that its images are drawn, and the prices are no real money. */
  isPlay: boolean;
  maxReferenceImages: number;
}

/**
 * Chooses the model of a run: the wanted one, else the `earlier` one of the same run, else the first of the service's
 * list. A service without a list gets the wanted model unchecked. Throws `BATCH_IMAGE_INVALID_MODEL` when the list does
 * not have it, unless it is the earlier one: a list leaves out models whose provider cannot be used now.
 */
export async function chooseModel(
  http: Http,
  named: string | null,
  signal?: AbortSignal,
  earlier: string | null = null,
): Promise<ChosenModel> {
  const wanted = named ?? earlier;
  const models = await listOrNull(() => listModels(http, signal), wanted !== null);
  if (models === null) return chosen(wanted ?? "", undefined);
  const id = wanted ?? models[0]?.id;
  if (id === undefined)
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", "This key can use no model for batches.");
  const listed = models.find((model) => model.id === id);
  if (listed === undefined && id !== earlier) {
    const message = `There is no batch model ${JSON.stringify(id)}; there is ${models.map((model) => model.id).join(", ") || "none"}.`;
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", message, { param: "model" });
  }
  return chosen(id, listed);
}

/** Returns a list of models; null when the service has none and none is needed. */
async function listOrNull<Model>(list: () => Promise<Model[]>, isOptional: boolean): Promise<Model[] | null> {
  try {
    return await list();
  } catch (error) {
    const hasNone =
      error instanceof ImgbatchError && (error.httpStatus === 404 || error.code === "BAD_RESPONSE");
    if (hasNone && isOptional) return null;
    throw error;
  }
}

function chosen(id: string, listed: ListedModel | undefined): ChosenModel {
  const maxReferenceImages = listed?.maxReferenceImages ?? referenceLimitByName(id);
  const { imageCostMicroUsd = null, imageHoldMicroUsd = null, isPaid = false, isPlay = false } = listed ?? {};
  return { id, imageCostMicroUsd, imageHoldMicroUsd, isPaid, isPlay, maxReferenceImages };
}

/** The smallest limit of the usual models. */
const USUAL_REFERENCES = 3;

/** Returns how many reference images a line may usually have. The service's own limit is not known yet. */
export function usualReferences(wanted: string | null): { max: number; who: string } {
  const max = wanted === null ? 0 : referenceLimitByName(wanted);
  if (max > 0) return { max, who: `${wanted} usually takes` };
  return { max: USUAL_REFERENCES, who: "many models (`imgbatch models` lists yours) take" };
}

/** Throws `INVALID_INPUT` naming every line with more reference images than the model takes. */
export function requireReferencesFit(items: readonly PromptItem[], model: ChosenModel): void {
  const max = model.maxReferenceImages;
  const problems = new Problems();
  for (const { fileLine, references } of items) {
    if (references.length <= max) continue;
    const message = `${model.id} takes at most ${counted(max, "reference image")}; this prompt has ${references.length}`;
    problems.add(fileLine, "reference_images", message);
  }
  problems.throwIfAny();
}

/** The demands on the model. */
export interface Wish {
  /** Null: the first of the list. */
  model: string | null;
  aspectRatio: string | null;
  size: string | null;
  /** The largest number of input images in one request. */
  inputImages: number;
}

/** The model that makes the images. */
export interface ChosenRealtimeModel {
  id: string;
  /** Returns the price of one image of a size (null: the usual one) in micro-dollars; null when the service does not say. */
  costOf(size: string | null): number | null;
  /** Whether the service says that its images cost real money. */
  isPaid: boolean;
  /** See `RealtimeModel`. */
  isPlay: boolean;
  /** Null when the service does not say. */
  aspectRatios: readonly string[] | null;
  imageSizes: readonly string[] | null;
}

const USUAL_SIZE = "1K";

/**
 * Chooses the model for real-time images: the wanted one, else the first of the service's list. The demands are checked
 * against the list before anything is sent. A service without a list gets the wanted model unchecked. Throws `REALTIME_MODEL_NOT_FOUND` and `USAGE`.
 */
export async function chooseRealtimeModel(
  http: Http,
  wish: Wish,
  signal?: AbortSignal,
): Promise<ChosenRealtimeModel> {
  const models = await listOrNull(() => listRealtimeModels(http, signal), wish.model !== null);
  if (models === null)
    return {
      id: wish.model ?? "",
      costOf: () => null,
      isPaid: false,
      isPlay: false,
      aspectRatios: null,
      imageSizes: null,
    };
  const model = wish.model === null ? models[0] : models.find(({ id }) => id === wish.model);
  if (model === undefined) throw notListed(wish.model, models);
  requireFits(model, wish);
  const { costsMicroUsd, ...rest } = model;
  return { ...rest, costOf: (size) => costsMicroUsd?.[size ?? USUAL_SIZE] ?? null };
}

function notListed(wanted: string | null, models: readonly RealtimeModel[]): ImgbatchError {
  const there = models.map(({ id }) => id).join(", ");
  const message =
    wanted === null
      ? "This key can use no model for real-time images."
      : `There is no real-time model ${JSON.stringify(wanted)}; there is ${there || "none"}.`;
  return new ImgbatchError("REALTIME_MODEL_NOT_FOUND", message, { param: "--model" });
}

function requireFits(model: RealtimeModel, { aspectRatio, size, inputImages }: Wish): void {
  requireOneOf(model.id, "--aspect-ratio", aspectRatio, model.aspectRatios);
  requireOneOf(model.id, "--size", size, model.imageSizes);
  if (model.maxInputImages === null || inputImages <= model.maxInputImages) return;
  const message = `${model.id} takes at most ${model.maxInputImages} input images, not ${inputImages}.`;
  throw new ImgbatchError("USAGE", message, { param: "--image" });
}

/** Throws `INVALID_INPUT` naming every line that asks for a ratio or size that the model does not make. */
export function requireShapesFit(items: readonly PromptItem[], model: ChosenRealtimeModel): void {
  const problems = new Problems();
  for (const { fileLine, aspectRatio, size } of items) {
    const check = (field: string, value: string | undefined, known: readonly string[] | null) => {
      if (value === undefined || known === null || known.includes(value)) return;
      problems.add(fileLine, field, `${value}: ${model.id} makes ${known.join(", ")}`);
    };
    check("aspect_ratio", aspectRatio, model.aspectRatios);
    check("size", size, model.imageSizes);
  }
  problems.throwIfAny();
}

function requireOneOf(id: string, flag: string, value: string | null, known: readonly string[] | null): void {
  if (value === null || known === null || known.includes(value)) return;
  throw new ImgbatchError("USAGE", `${flag} ${value}: ${id} makes ${known.join(", ")}.`, { param: flag });
}
