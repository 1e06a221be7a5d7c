import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../../contract/limits.ts";
import { createJob } from "../../../domain/lines/create-job.ts";
import { consentingCaller } from "../../consent.ts";
import type { ApiDeps } from "../../deps.ts";
import { usableFile } from "../../jobs/usable-file.ts";
import { withJsonBody } from "../../request-body/with-json-body.ts";
import { findBatchModel } from "../models.ts";
import { checkJob } from "./check-job.ts";
import { jobView } from "./job-view.ts";

/** `POST …:batchGenerateContent`: accepts a batch job. Its lines are checked and paid for later, by a worker. */
export function createBatchJob(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const caller = consentingCaller(deps, request, response, "REALTIME_INVALID_ARGUMENT");
    const model = findBatchModel(deps, request, response);
    // The lines are kept as they came: a worker takes their images out.
    const images = { path: [], base64: "lenient", maxBytes: 0, blobs: deps.blobs } as const;
    const options = { ...deps, maxBytes: FIXED_LIMITS.inlineBodyBytes, images };
    const batch = await withJsonBody(request, response, options, async ({ value }) => {
      const { name, input } = checkJob(value);
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
