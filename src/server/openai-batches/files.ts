import type { Request, Response } from "express";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { type DeletedFile, FILE_PURPOSES } from "../../contract/openai-api.ts";
import { dropOutputs } from "../../domain/batches/delete-outputs.ts";
import { deleteFile, findFile } from "../../domain/files/files.ts";
import type { ApiDeps } from "../deps.ts";
import { callerOf } from "../middleware/authenticate.ts";
import { fileNotFound, fileParameter } from "../native-api/files/files.ts";
import { invalidQuery, queryChoice, queryText } from "../query/query.ts";
import { fileView, resultView } from "./file-view.ts";
import { listPage, pageLimit } from "./list-page.ts";
import { findResult, type ResultOf } from "./result-file.ts";

/** `GET /v1/files`: the uploaded files of the key, page by page. Files with results are named by their batches. */
export function listOpenaiFiles(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: apiKeyId } = callerOf(response).key;
    const limit = pageLimit(request, FIXED_LIMITS.filePageMax, FIXED_LIMITS.filePageMax);
    const order = queryChoice(request, "order", ["asc", "desc"]) ?? "desc";
    const purpose = queryChoice(request, "purpose", [...FILE_PURPOSES, "batch_output"]);
    const after = queryText(request, "after");
    const last = after === undefined ? undefined : await deps.stores.read.files.find(apiKeyId, after);
    if (last === null) throw invalidQuery("after", "must be the id of a file of this list");
    const found = await deps.stores.read.files.page({
      apiKeyId,
      nowMs: deps.clock.nowMs(),
      order: order === "asc" ? "oldest-first" : "newest-first",
      ...(last && { afterSeq: last.seq }),
      ...(purpose && { purpose }),
      // One more shows whether there is another page.
      limit: limit + 1,
    });
    response.json(listPage(found.map(fileView), limit));
  };
}

/** `GET /v1/files/{file}`. */
export function getOpenaiFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: keyId } = callerOf(response).key;
    const id = fileParameter(request);
    const file = await findFile(deps.stores.read, keyId, id, deps.clock.nowMs());
    if (file !== null) {
      response.json(fileView(file));
      return;
    }
    // Its size is known only after the results were read.
    const leaveSlot = deps.slots.take(keyId);
    try {
      const made = await deps.findGeneratedFile(keyId, id);
      if (made === null) throw fileNotFound(id);
      response.json(resultView(id, made));
    } finally {
      leaveSlot();
    }
  };
}

/** `DELETE /v1/files/{file}`: also the images, or the errors, of a batch. */
export function removeOpenaiFile(deps: ApiDeps) {
  return async (request: Request, response: Response): Promise<void> => {
    const { id: keyId } = callerOf(response).key;
    const id = fileParameter(request);
    const file = await findFile(deps.stores.read, keyId, id, deps.clock.nowMs());
    if (file !== null) await deleteFile(deps, file);
    else {
      const result = await findResult(deps, keyId, id);
      if (result === null) throw fileNotFound(id);
      await removeResult(deps, result);
    }
    const deleted: DeletedFile = { id, object: "file", deleted: true };
    response.json(deleted);
  };
}

async function removeResult(deps: ApiDeps, { kind, batch }: ResultOf): Promise<void> {
  if (kind === "output") return dropOutputs(deps, batch.id, deps.clock.nowMs());
  const { input } = batch;
  if (!input?.openai) return;
  const openai = { ...input.openai, areErrorsDeleted: true };
  await deps.stores.write((tx) => tx.batches.update(batch.id, { input: { ...input, openai } }));
}
