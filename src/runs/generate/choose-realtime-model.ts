import { listRealtimeModels, type RealtimeModel } from "../../client/realtime-models.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Http } from "../../http/http.ts";
import { Problems } from "../../prompts/problems.ts";
import type { PromptItem } from "../prompts/prompt-item.ts";

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
  const models = await listOrNull(http, wish.model !== null, signal);
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

async function listOrNull(
  http: Http,
  isOptional: boolean,
  signal: AbortSignal | undefined,
): Promise<RealtimeModel[] | null> {
  try {
    return await listRealtimeModels(http, signal);
  } catch (error) {
    const hasNone =
      error instanceof ImgbatchError && (error.httpStatus === 404 || error.code === "BAD_RESPONSE");
    if (hasNone && isOptional) return null;
    throw error;
  }
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
