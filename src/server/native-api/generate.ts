import type { Request, Response } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { generateContentSchema } from "../../contract/native-api/generate-content.ts";
import { fileImagesOf } from "../../domain/files/files.ts";
import { contentFingerprint } from "../../domain/realtime/checked-content.ts";
import type { GeneratedContent } from "../../domain/realtime/generate.ts";
import { MAX_INPUT_IMAGES } from "../../domain/realtime/models.ts";
import { answerOnce } from "../answer-once.ts";
import { answerStream } from "../answer-stream.ts";
import { goneSignal } from "../connections/exchange.ts";
import { consentingCaller } from "../consent.ts";
import type { ApiDeps } from "../deps.ts";
import { idempotencyKeyOf } from "../idempotency-key.ts";
import { type BodyFormat, type Shape, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/with-json-body.ts";
import { findModel } from "./models.ts";
import { checkContent } from "./request/check-content.ts";
import { contentView } from "./response/content-view.ts";
import { framingOf } from "./stream.ts";

const marks = { "contents[].parts[].text": "prompt", "contents[].parts[].inlineData.data": "image" } as const;
/** The shape of a request. */
export const CONTENT_SHAPE = shapeOf(generateContentSchema, marks, true);

/** The format of a body with one request. */
export function contentFormat(
  { promptChars }: Pick<Limits, "promptChars">,
  shape: Shape = CONTENT_SHAPE,
): BodyFormat {
  const code = () => "REALTIME_INVALID_ARGUMENT" as const;
  // A prompt, and the earlier turns.
  return { shape, prompts: 2, images: MAX_INPUT_IMAGES, promptChars, code };
}

/**
 * `POST …:generateContent` and `POST …:streamGenerateContent`. The order, behind the key: model, size of
 * the body, its fields, provider, the limits of the key, money.
 */
export function generate(deps: ApiDeps, { isStream }: { isStream: boolean }) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const idempotencyKey = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
    const gone = goneSignal(response, new ImgbatchError("REALTIME_CANCELLED", "The caller went away."));
    const framing = isStream ? framingOf(request) : null;
    const model = findModel(deps, request, response);
    const { limits, blobs } = deps;
    const images = { base64: "lenient", maxBytes: limits.referenceImageBytes, blobs } as const;
    const options = { ...deps, maxBytes: limits.realtimeBodyBytes, format: contentFormat(limits), images };
    await withJsonBody(request, response, options, async ({ value, sent }) => {
      const { strictImageConfig } = deps.features;
      const files = fileImagesOf(deps, caller.key.id);
      try {
        const rules = { ...deps, strictImageConfig, sent, findFileImage: files.find };
        const content = await checkContent(value, model, rules);
        const operation = isStream ? "streamGenerateContent" : "generateContent";
        const work = answerOnce<GeneratedContent>(deps, response, gone, {
          apiKeyId: caller.key.id,
          idempotencyKey,
          fingerprint: () => contentFingerprint(operation, content),
          make: (leaving, record) => deps.realtime.generate(caller, content, leaving, record),
          render: bodyOf,
        });
        if (framing) await answerStream(deps, framing, response, work);
        else response.type("json").send(await work);
      } catch (error) {
        // The caller has disconnected: no response can reach it.
        if (!gone.aborted) throw error;
      } finally {
        await files.release();
      }
    });
  };
}

const bodyOf = (content: GeneratedContent): Buffer => Buffer.from(JSON.stringify(contentView(content)));
