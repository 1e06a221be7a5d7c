import { listModels } from "../../client/models.ts";
import type { ListedModel } from "../../client/wire/read-items.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { referenceLimitByName } from "../../contract/text-rules.ts";
import type { Http } from "../../http/http.ts";
import { counted } from "../../kernel/text.ts";
import { Problems } from "../../prompts/problems.ts";
import type { PromptItem } from "../prompts/prompt-item.ts";

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
  const models = await listOrNull(http, wanted !== null, signal);
  if (models === null) return describe(wanted ?? "", undefined);
  const id = wanted ?? models[0]?.id;
  if (id === undefined)
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", "This key can use no model for batches.");
  const listed = models.find((model) => model.id === id);
  if (listed === undefined && id !== earlier) {
    const message = `There is no batch model ${JSON.stringify(id)}; there is ${models.map((model) => model.id).join(", ") || "none"}.`;
    throw new ImgbatchError("BATCH_IMAGE_INVALID_MODEL", message, { param: "model" });
  }
  return describe(id, listed);
}

/** Null when the service has no list and none is needed. */
async function listOrNull(
  http: Http,
  isOptional: boolean,
  signal?: AbortSignal,
): Promise<ListedModel[] | null> {
  try {
    return await listModels(http, signal);
  } catch (error) {
    const hasNone =
      error instanceof ImgbatchError && (error.code === "NOT_FOUND" || error.code === "BAD_RESPONSE");
    if (hasNone && isOptional) return null;
    throw error;
  }
}

function describe(id: string, listed: ListedModel | undefined): ChosenModel {
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
