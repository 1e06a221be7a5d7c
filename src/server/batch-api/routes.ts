import { type Request, type RequestHandler, type Response, Router } from "express";
import { ImgbatchError } from "../../contract/errors.ts";
import type { ApiDeps } from "../deps.ts";
import { authenticate, requireBatchGroup } from "../middleware/authenticate.ts";
import { methodNotAllowed } from "../middleware/errors.ts";
import { cancel } from "./cancel.ts";
import { content } from "./content.ts";
import { create } from "./create.ts";
import { deleteOutputs } from "./delete-outputs.ts";
import { deleteRecord } from "./delete-record.ts";
import { download } from "./download.ts";
import { get } from "./get.ts";
import { items } from "./items.ts";
import { list } from "./list.ts";
import { models } from "./models.ts";

/** The batch API, to be mounted at `/v1/images/batches`. Every operation is a file beside this one. */
export function batchRoutes(deps: ApiDeps): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const featureOn = requireFeature(deps);
  const group = requireBatchGroup(deps);
  router.use(authenticate(deps));

  router.get("/models", featureOn, group, models(deps));
  router.all("/models", methodNotAllowed(["GET", "HEAD"]));
  router.post("/", featureOn, group, create(deps));
  router.get("/", group, list(deps));
  router.all("/", methodNotAllowed(["GET", "HEAD", "POST"]));
  router.get("/:id", group, get(deps));
  router.delete("/:id", group, deleteRecord(deps));
  router.all("/:id", methodNotAllowed(["GET", "HEAD", "DELETE"]));
  router.get("/:id/items", group, items(deps));
  router.all("/:id/items", methodNotAllowed(["GET", "HEAD"]));
  router.get("/:id/items/:custom_id/content", group, content(deps));
  router.all("/:id/items/:custom_id/content", methodNotAllowed(["GET", "HEAD"]));
  router.get("/:id/download", group, download(deps));
  router.all("/:id/download", methodNotAllowed(["GET", "HEAD"]));
  router.post("/:id/cancel", group, cancel(deps));
  router.all("/:id/cancel", methodNotAllowed(["POST"]));
  router.delete("/:id/outputs", group, deleteOutputs(deps));
  router.all("/:id/outputs", methodNotAllowed(["DELETE"]));
  return router;
}

/** Switching batches off stops new ones; finished results stay reachable. */
function requireFeature(deps: ApiDeps): RequestHandler {
  return (_request: Request, _response: Response, next) => {
    if (!deps.features.batchImages) throw new ImgbatchError("BATCH_IMAGE_DISABLED");
    next();
  };
}
