import { Router } from "express";
import type { ApiDeps } from "../deps.ts";
import { methodNotAllowed, notFound } from "../middleware/errors.ts";
import { authenticateNative } from "./authenticate.ts";
import { generate } from "./generate.ts";
import { checkModelPath } from "./model-path.ts";
import { nativeModel, nativeModels, sharedModel, sharedModels } from "./models.ts";

/** The version prefixes: clients of the native API use either. */
const NATIVE = "/v1beta";
const SHARED = "/v1";

/** The native real-time API and the model lists, for the root of the application. */
export function nativeRoutes(deps: ApiDeps): Router {
  const router = Router({ caseSensitive: true, strict: true });
  const authenticated = authenticateNative(deps);
  router.use(NATIVE, authenticated);
  router.use(`${SHARED}/models`, authenticated);
  for (const prefix of [NATIVE, SHARED]) {
    const models = `${prefix}/models`;
    router.use(models, checkModelPath);
    router.post(`${models}/:model\\:generateContent`, generate(deps, { isStream: false }));
    router.all(`${models}/:model\\:generateContent`, methodNotAllowed(["POST"]));
    router.post(`${models}/:model\\:streamGenerateContent`, generate(deps, { isStream: true }));
    router.all(`${models}/:model\\:streamGenerateContent`, methodNotAllowed(["POST"]));
    router.all(`${models}/:model\\::verb`, notFound);
  }
  router.get(`${NATIVE}/models`, nativeModels(deps));
  router.get(`${NATIVE}/models/:model`, nativeModel(deps));
  router.get(`${SHARED}/models`, sharedModels(deps));
  router.get(`${SHARED}/models/:model`, sharedModel(deps));
  const lists = [NATIVE, SHARED].flatMap((prefix) => [`${prefix}/models`, `${prefix}/models/:model`]);
  router.all(lists, methodNotAllowed(["GET", "HEAD"]));
  return router;
}
