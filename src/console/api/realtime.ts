import type {
  GenerateContentBody,
  GenerateContentResponse,
  NativeModel,
  NativeModelList,
} from "../../contract/native-api.ts";
import { routes } from "../../contract/routes.ts";
import { bytesOf } from "./base64.ts";
import { type Consent, consentHeaders } from "./consent.ts";
import { ApiError, fetchJson } from "./request.ts";

export async function realtimeModels(signal: AbortSignal): Promise<NativeModel[]> {
  return (await fetchJson<NativeModelList>(`${routes.nativeModels}?pageSize=1000`, { signal })).models;
}

/** Makes one image now. Throws `ApiError`, also for an answer without an image (`NO_IMAGE`). */
export async function generateImage(
  model: string,
  body: GenerateContentBody,
  consent: Consent,
  signal: AbortSignal,
): Promise<Blob> {
  const call = { method: "POST", json: body, headers: consentHeaders(consent), signal };
  const answer = await fetchJson<GenerateContentResponse>(routes.generateContent(model), call);
  const [candidate] = answer.candidates ?? [];
  const image = candidate?.content?.parts?.find(
    ({ inlineData, thought }) => inlineData && !thought,
  )?.inlineData;
  if (image) return new Blob([bytesOf(image.data)], { type: image.mimeType });
  const refused = answer.promptFeedback?.blockReasonMessage ?? answer.promptFeedback?.blockReason;
  const ended = candidate?.finishMessage ?? candidate?.finishReason;
  throw new ApiError(
    "NO_IMAGE",
    `No image was made, and nothing is billed: ${refused ?? ended ?? "no reason given"}.`,
    200,
  );
}
