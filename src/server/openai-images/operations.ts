import type { RequestHandler } from "express";
import type { ServiceErrorCode } from "../../contract/errors.ts";
import { PATHS } from "../../contract/routes.ts";
import { headerKey } from "../native-api/credentials.ts";
import { generateErrors } from "../native-api/operations.ts";
import type { Answer, Surface } from "../operation.ts";
import { openaiErrorStyles } from "./error-style.ts";
import { makeImages } from "./make-images.ts";
import { imageOutput } from "./output.ts";

const errors: readonly ServiceErrorCode[] = [
  ...generateErrors,
  "REALTIME_REFUSED",
  "REALTIME_NO_IMAGE",
  "REQUEST_TIMEOUT",
  "BATCH_IMAGE_QUEUE_FAILED",
];

const answers: Record<number, Answer> = {
  200: {
    description: "The images that were made; with `stream`, an event for each of them.",
    schema: "Images",
    eventsOf: "ImageEvent",
    headers: ["RequestReplayed"],
  },
};

const make = { method: "post", parameters: ["RequestKey", "MaxCost"], answers, errors } as const;

/** `/images/…` is read as `/v1/images/…`: some clients add the version to their base URL, others do not. */
const readPath = (): RequestHandler => (request, _response, next) => {
  request.url = request.url.replace(/^\/images\/(?=(?:generations|edits)(?:[/?]|$))/, "/v1/images/");
  next();
};

const generations: Surface = {
  tag: "realtime",
  prefix: PATHS.imageGenerations,
  operations: [
    {
      ...make,
      id: "generateImages",
      path: PATHS.imageGenerations,
      summary: "Make images and wait for them, for OpenAI clients",
      body: "GenerateImages",
      handler: (deps) => makeImages(deps, { isEdit: false }),
    },
  ],
  credential: headerKey,
  readPath,
  errorStyles: openaiErrorStyles,
};

const edits: Surface = {
  tag: "realtime",
  prefix: PATHS.imageEdits,
  operations: [
    {
      ...make,
      id: "editImages",
      path: PATHS.imageEdits,
      summary: "The same from images of yours",
      body: "EditImages",
      formBody: "EditImagesForm",
      handler: (deps) => makeImages(deps, { isEdit: true }),
    },
  ],
  credential: headerKey,
};

const headers = ["ContentLength", "ContentDisposition", "ETag", "AcceptRanges", "CacheControl", "NoSniff"];
const bytes = ["image/png", "image/jpeg", "image/webp"];

const outputs: Surface = {
  tag: "realtime",
  prefix: "/v1/images/outputs",
  operations: [
    {
      id: "getImageOutput",
      method: "get",
      path: PATHS.imageOutput,
      summary: "An image that was asked for by URL, for an hour",
      parameters: ["OutputName", "Range", "IfRange", "IfNoneMatch"],
      answers: {
        200: { description: "The image.", bytes, headers },
        206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
        304: { description: "Unchanged since the ETag of `If-None-Match`.", headers: ["ETag"] },
        416: { description: "The range begins after the end.", headers: ["ContentRange"] },
      },
      errors: ["REALTIME_OUTPUT_NOT_FOUND"],
      handler: imageOutput,
    },
  ],
  credential: null,
};

/** OpenAI's API for images. */
export const openaiImages: readonly Surface[] = [generations, edits, outputs];
