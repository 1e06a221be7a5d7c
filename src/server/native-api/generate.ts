import type { Request, Response } from "express";
import { ImgbatchError, nativeErrorBody, type ServiceErrorCode } from "../../contract/errors.ts";
import type { Limits } from "../../contract/limits.ts";
import { generateContentSchema } from "../../contract/native-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { fileImagesOf } from "../../domain/files/files.ts";
import { MAX_INPUT_IMAGES } from "../../domain/models.ts";
import { contentFingerprint } from "../../domain/realtime/checked-content.ts";
import type { GeneratedContent } from "../../domain/realtime/realtime.ts";
import type { ApiDeps } from "../deps.ts";
import { answerOnce, answerStream, type Framing } from "../http/answer.ts";
import { consentingCaller, idempotencyKeyOf } from "../http/authenticate.ts";
import { fieldError } from "../http/errors.ts";
import { goneSignal } from "../http/exchange.ts";
import type { Operation } from "../operation.ts";
import { type BodyFormat, type Shape, shapeOf } from "../request-body/body-shape.ts";
import { withJsonBody } from "../request-body/json-body.ts";
import { checkContent } from "./check-content.ts";
import { contentView, openingView } from "./content-view.ts";
import { findModel } from "./models.ts";

const OPENING = JSON.stringify(openingView());

/** Nothing but `data:` lines: clients of this protocol stumble over comments, event names and end marks. */
const event = (json: string | Buffer) => `data: ${json}\n\n`;

const EVENTS: Framing = {
  type: "text/event-stream",
  opening: event(OPENING),
  result: event,
  failure: (error) => event(JSON.stringify(nativeErrorBody(error))),
  end: "",
};
const ARRAY: Framing = {
  type: "application/json; charset=utf-8",
  opening: `[${OPENING}`,
  result: (json, isFirst) => `${isFirst ? "[" : ",\n"}${json}`,
  failure: (error) => `,\n${JSON.stringify(nativeErrorBody(error))}`,
  end: "]",
};

/** How the result of a request is streamed: as events with `alt=sse`, else as one JSON array. Throws `REALTIME_INVALID_ARGUMENT` for an `alt` that is not known. */
function framingOf(request: Request): Framing {
  const { alt } = request.query;
  if (alt === "sse") return EVENTS;
  if (alt === undefined || alt === "" || alt === "json") return ARRAY;
  throw fieldError("REALTIME_INVALID_ARGUMENT", "alt", "must be sse or json");
}

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
function generate(deps: ApiDeps, { isStream }: { isStream: boolean }) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const key = idempotencyKeyOf(request, "REALTIME_INVALID_ARGUMENT");
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
        const once = key === null ? null : { key, fingerprint: contentFingerprint(operation, content) };
        const asked = { caller, content, count: 1, gone, once, render: bodyOf };
        const work = answerOnce(deps, response, asked);
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

function bodyOf([content]: readonly GeneratedContent[]): Buffer {
  if (content === undefined) throw new Error("a request for one image has no outcome");
  return Buffer.from(JSON.stringify(contentView(content)));
}

/** The errors of every request that makes images in real time. */
export const generateErrors: readonly ServiceErrorCode[] = [
  "REALTIME_INVALID_ARGUMENT",
  "REALTIME_MODEL_NOT_FOUND",
  "UNSUPPORTED_MEDIA_TYPE",
  "REQUEST_TOO_LARGE",
  "INVALID_JSON",
  "REALTIME_NO_PROVIDER",
  "REALTIME_INSUFFICIENT_BALANCE",
  "REALTIME_PROVIDER_PAUSES",
  "REALTIME_PROVIDER_LIMITED",
  "REALTIME_PROVIDER_FAILED",
  "REALTIME_PROVIDER_UNREACHABLE",
  "REALTIME_PROVIDER_OVERLOADED",
  "REALTIME_TIMEOUT",
  "REALTIME_IDEMPOTENCY_CONFLICT",
  "REALTIME_OUTCOME_UNKNOWN",
  "BATCH_IMAGE_RESULT_MISSING",
  "REALTIME_CANCELLED",
  "REALTIME_STOPPING",
];

const verb = { method: "post", body: "GenerateContent", errors: generateErrors } as const;

/** The verbs of a model that make an image in real time. */
export const generateOperations: readonly Operation[] = [
  {
    ...verb,
    id: "generateContent",
    path: `${PATHS.nativeModel}:generateContent`,
    summary: "Make or edit an image and wait for it",
    parameters: ["Model", "RequestKey", "MaxCost"],
    answers: {
      200: {
        description: "The image. A response without an `inlineData` part has none, and costs nothing.",
        schema: "GenerateContentAnswer",
        headers: ["RequestReplayed"],
      },
    },
    handler: (deps) => generate(deps, { isStream: false }),
  },
  {
    ...verb,
    id: "streamGenerateContent",
    path: `${PATHS.nativeModel}:streamGenerateContent`,
    summary: "The same as a stream",
    parameters: ["Model", "Alt", "RequestKey", "MaxCost"],
    answers: {
      200: {
        description: "Parts of the answer, the last with `finishReason`; or an error, which ends the stream.",
        streamOf: "GenerateContentAnswer",
        headers: ["RequestReplayed"],
      },
    },
    handler: (deps) => generate(deps, { isStream: true }),
  },
];
