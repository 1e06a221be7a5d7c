import type { RequestHandler } from "express";
import { PATHS } from "../../contract/routes.ts";
import { headerKey } from "../native-api/paths.ts";
import type { Surface } from "../operation.ts";
import { batchOperations } from "./batches.ts";
import { fileOperations } from "./files.ts";
import { editOperation, generateOperation, openaiErrorStyle, outputOperation } from "./images.ts";

const files: Surface = {
  tag: "files",
  prefix: PATHS.openaiFiles,
  operations: fileOperations,
  credential: headerKey,
  errorStyles: [[/^\/v1\/(?:files|batches)(?:\/|$)/, openaiErrorStyle]],
};

const batches: Surface = {
  tag: "batches",
  prefix: PATHS.openaiBatches,
  operations: batchOperations,
  credential: headerKey,
};

/** `/images/…` is read as `/v1/images/…`: some clients add the version to their base URL, others do not. */
const readPath = (): RequestHandler => (request, _response, next) => {
  request.url = request.url.replace(/^\/images\/(?=(?:generations|edits)(?:[/?]|$))/, "/v1/images/");
  next();
};

const generations: Surface = {
  tag: "realtime",
  prefix: PATHS.imageGenerations,
  operations: [generateOperation],
  credential: headerKey,
  readPath,
  // Also for paths as they were sent, where no request could be parsed.
  errorStyles: [[/^(?:\/v1)?\/images\/(?:generations|edits|outputs)(?:\/|$)/, openaiErrorStyle]],
};

const edits: Surface = {
  tag: "realtime",
  prefix: PATHS.imageEdits,
  operations: [editOperation],
  credential: headerKey,
};

const outputs: Surface = {
  tag: "realtime",
  prefix: "/v1/images/outputs",
  operations: [outputOperation],
  credential: null,
};

/** OpenAI's API. */
export const openaiSurfaces: readonly Surface[] = [generations, edits, outputs, files, batches];
