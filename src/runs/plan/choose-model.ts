import { listModels } from "../../client/batches.ts";
import { listRealtimeModels, type RealtimeModel } from "../../client/realtime.ts";
import { type ErrorCode, ImgbatchError } from "../../contract/errors.ts";
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

/** A kind of models, in words and in errors. */
interface Kind {
  makes: string;
  kind: string;
  code: ErrorCode;
  param: string;
}

const BATCH: Kind = { makes: "batches", kind: "batch", code: "BATCH_IMAGE_INVALID_MODEL", param: "model" };
const REALTIME: Kind = {
  makes: "real-time images",
  kind: "real-time",
  code: "REALTIME_MODEL_NOT_FOUND",
  param: "--model",
};

/**
 * Returns the wanted model of a list, else the `earlier` one, else the first. `listed` is undefined if the service has no
 * list, or if the list lacks the earlier one: it leaves out models whose provider cannot be used now.
 */
async function findModel<Model extends { id: string }>(
  list: () => Promise<Model[]>,
  { makes, kind, code, param }: Kind,
  { named, earlier = null }: { named: string | null; earlier?: string | null },
): Promise<{ id: string; listed: Model | undefined }> {
  const wanted = named ?? earlier;
  const models = await list().catch((error) => {
    const hasNone =
      error instanceof ImgbatchError && (error.httpStatus === 404 || error.code === "BAD_RESPONSE");
    if (hasNone && wanted !== null) return null;
    throw error;
  });
  if (models === null) return { id: wanted ?? "", listed: undefined };
  const id = wanted ?? models[0]?.id;
  if (id === undefined) throw new ImgbatchError(code, `This key can use no model for ${makes}.`, { param });
  const listed = models.find((model) => model.id === id);
  if (listed !== undefined || id === earlier) return { id, listed };
  const there = models.map((model) => model.id).join(", ") || "none";
  throw new ImgbatchError(code, `There is no ${kind} model ${JSON.stringify(id)}; there is ${there}.`, {
    param,
  });
}

/**
 * Chooses the model of a run: the wanted one, else the `earlier` one of the same run, else the first of the service's
 * list. A service without a list gets the wanted model unchecked. Throws `BATCH_IMAGE_INVALID_MODEL` when the list does
 * not have it, unless it is the earlier one.
 */
export async function chooseModel(
  http: Http,
  named: string | null,
  signal?: AbortSignal,
  earlier: string | null = null,
): Promise<ChosenModel> {
  const { id, listed } = await findModel(() => listModels(http, signal), BATCH, { named, earlier });
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
  const { id, listed } = await findModel(() => listRealtimeModels(http, signal), REALTIME, {
    named: wish.model,
  });
  if (listed !== undefined) requireFits(listed, wish);
  const { costsMicroUsd = null, isPaid = false, isPlay = false } = listed ?? {};
  const { aspectRatios = null, imageSizes = null } = listed ?? {};
  const costOf = (size: string | null) => costsMicroUsd?.[size ?? USUAL_SIZE] ?? null;
  return { id, costOf, isPaid, isPlay, aspectRatios, imageSizes };
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
