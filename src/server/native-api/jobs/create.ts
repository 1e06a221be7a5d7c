import type { Request, Response } from "express";
import { FIXED_LIMITS, type Limits } from "../../../contract/limits.ts";
import { createJobSchema } from "../../../contract/native-jobs.ts";
import { createJob } from "../../../domain/lines/create-job.ts";
import { MAX_INPUT_IMAGES } from "../../../domain/realtime/models.ts";
import { consentingCaller } from "../../consent.ts";
import type { ApiDeps } from "../../deps.ts";
import { usableFile } from "../../jobs/usable-file.ts";
import { type BodyFormat, shapeOf } from "../../request-body/body-shape.ts";
import { withJsonBody } from "../../request-body/with-json-body.ts";
import { CONTENT_SHAPE } from "../generate.ts";
import { findBatchModel } from "../models.ts";
import { checkJob } from "./check-job.ts";
import { jobView } from "./job-view.ts";

const SHAPE = shapeOf(
  createJobSchema,
  { "batch.inputConfig.requests.requests[].request": CONTENT_SHAPE },
  true,
);
const { inlineLines, inlineLineFields } = FIXED_LIMITS;

const formatOf = ({ promptChars }: Limits): BodyFormat => ({
  shape: SHAPE,
  prompts: 2 * inlineLines,
  images: MAX_INPUT_IMAGES * inlineLines,
  promptChars,
  fields: inlineLineFields * inlineLines,
  code: () => "REALTIME_INVALID_ARGUMENT",
});

/** `POST …:batchGenerateContent`: accepts a batch job. Its lines are checked and paid for later, by a worker. */
export function createBatchJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const model = findBatchModel(deps, request, response);
    const maxBytes = FIXED_LIMITS.inlineBodyBytes;
    // A worker checks the images with their lines, and refuses those that are too large.
    const images = { base64: "lenient", maxBytes, blobs: deps.blobs } as const;
    const options = { ...deps, maxBytes, format: formatOf(deps.limits), images };
    const batch = await withJsonBody(request, response, options, async (body) => {
      const { name, input } = checkJob(body);
      const source = "native";
      const lines = "lines" in input ? input : await fileInput(deps, caller.key.id, input.fileName);
      return createJob(deps, caller, { source, model, name, input: lines });
    });
    deps.onBatchCreated(batch);
    response.json(jobView(batch, batch.status, null));
  };
}

async function fileInput(deps: ApiDeps, keyId: string, name: string) {
  const { id, blobKey } = await usableFile(deps, keyId, name, "batch.inputConfig.fileName");
  return { fileName: `files/${id}`, blobKey };
}
