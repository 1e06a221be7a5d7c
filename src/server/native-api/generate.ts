import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import { IDEMPOTENCY_REPLAYED_HEADER } from "../../contract/routes.ts";
import type { Caller } from "../../domain/batches/create-batch.ts";
import { fileImagesOf } from "../../domain/files/files.ts";
import { type CheckedContent, contentFingerprint } from "../../domain/realtime/checked-content.ts";
import type { GeneratedContent } from "../../domain/realtime/generate.ts";
import { goneSignal, onEnded } from "../connections/exchange.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import type { ImageTexts } from "../request-body/image-extraction.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { findModel } from "./models.ts";
import { checkContent } from "./request/check-content.ts";
import { contentView } from "./response/content-view.ts";
import { answerStream, framingOf } from "./stream.ts";

/** Where the images of a request are. */
export const contentImages: Pick<ImageTexts, "path" | "base64"> = {
  path: [["contents"], "*", ["parts"], "*", ["inlineData", "inline_data"], ["data"]],
  base64: "lenient",
};

/**
 * `POST …:generateContent` and `POST …:streamGenerateContent`. The order, behind the key: its limits,
 * model, size of the body, its fields, provider, money.
 */
export function generate(deps: ApiDeps, { isStream }: { isStream: boolean }) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const idempotencyKey = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
    // A repeat that waits for another request takes no place among those that run.
    if (idempotencyKey !== null) deps.requestLimits.count(caller.key.id);
    else onEnded(response, deps.requestLimits.begin(caller.key.id));
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    const framing = isStream ? framingOf(request) : null;
    const model = findModel(deps, request, response);
    const images = { ...contentImages, maxBytes: deps.limits.referenceImageBytes, blobs: deps.blobs };
    const options = { ...deps, maxBytes: deps.limits.realtimeBodyBytes, images };
    await withJsonBody(request, response, options, async ({ value, sent }) => {
      const { strictImageConfig } = deps.features;
      const files = fileImagesOf(deps, caller.key.id);
      try {
        const rules = { ...deps, strictImageConfig, sent, findFileImage: files.find };
        const content = await checkContent(value, model, rules);
        const work =
          idempotencyKey === null
            ? deps.realtime.generate(caller, content, gone).then(bodyOf)
            : generateOnce(deps, response, gone, { caller, content, idempotencyKey, isStream });
        if (framing) await answerStream(deps, framing, response, work);
        else response.type("json").send(await work);
      } catch (error) {
        // The caller is gone: no response can reach it.
        if (!gone.aborted) throw error;
      } finally {
        await files.release();
      }
    });
  };
}

/** Returns the body of the first answer with this key. The response says whether it is an earlier one. */
async function generateOnce(
  { keyedRequests, realtime, requestLimits }: ApiDeps,
  response: Response,
  gone: AbortSignal,
  asked: { caller: Caller; content: CheckedContent; idempotencyKey: string; isStream: boolean },
): Promise<Buffer> {
  const { caller, content, idempotencyKey: key, isStream } = asked;
  const apiKeyId = caller.key.id;
  const operation = isStream ? "streamGenerateContent" : "generateContent";
  const fingerprint = contentFingerprint(operation, content);
  const answer = await keyedRequests.answer({ apiKeyId, key, fingerprint }, gone, {
    make: async (record) => {
      const ended = requestLimits.take(apiKeyId);
      return realtime.generate(caller, content, null, record).finally(ended);
    },
    render: bodyOf,
  });
  if (!response.headersSent) response.setHeader(IDEMPOTENCY_REPLAYED_HEADER, String(answer.isReplay));
  if ("error" in answer) throw answer.error;
  return answer.body;
}

const bodyOf = (content: GeneratedContent): Buffer => Buffer.from(JSON.stringify(contentView(content)));
