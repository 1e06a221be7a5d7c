import { ImgbatchError, nativeErrorBody } from "../../contract/errors.ts";
import { MODEL_VERBS, PATHS } from "../../contract/routes.ts";
import { headerKey, headerOrQueryKey } from "../http/authenticate.ts";
import { type ErrorStyle, invalidArgument } from "../http/errors.ts";
import { download } from "../jobs/vendor-files.ts";
import type { Credential, Surface } from "../operation.ts";
import { fileOperations, nativeUploads } from "./files.ts";
import { generateOperations } from "./generate.ts";
import { interactions } from "./interactions.ts";
import { createJobOperation, jobOperations } from "./jobs.ts";
import { modelOperations, sharedModelOperations } from "./models.ts";

const MODEL_PATH = /^\/v1(?:beta)?\/models\/(.+)$/;

/**
 * A path that cannot name a model is a bad request, not an unknown model, and a verb that does not exist is not a model.
 * The router could not decode some of these paths, so they are checked before it. The key is checked first.
 */
function screenModelPath({ authenticate }: Credential): Credential["authenticate"] {
  return (deps) => {
    const authenticated = authenticate(deps);
    return (request, response, next) => {
      const raw = MODEL_PATH.exec(request.path)?.[1];
      const problem = raw === undefined ? null : modelPathProblem(raw);
      if (problem === null) return next();
      return authenticated(request, response, (error) => next(error ?? problem));
    };
  };
}

/** The error of the part of a path behind `/models/`, as it was sent; null when it names a model, perhaps with a verb. */
function modelPathProblem(raw: string): ImgbatchError | null {
  if (!canNameModel(raw)) {
    return invalidArgument("model", "the path does not name a model");
  }
  const hasVerb = /^[^/]+?:[^/]+$/.test(raw);
  const isKnown = MODEL_VERBS.some((verb) => raw.endsWith(`:${verb}`));
  return hasVerb && !isKnown ? new ImgbatchError("NOT_FOUND") : null;
}

function canNameModel(raw: string): boolean {
  let name: string;
  try {
    name = decodeURIComponent(raw);
  } catch {
    return false;
  }
  const colon = name.lastIndexOf(":");
  const [model, verb] = colon < 0 ? [name, ""] : [name.slice(0, colon), name.slice(colon + 1)];
  if (model === "" || /[\p{Cc}\s]/u.test(model)) return false;
  // Without a verb, more parts are a path that does not exist.
  return verb === "" || !raw.includes("/");
}

const schema = { $ref: "#/components/schemas/NativeError" };

/** Errors as the native API writes them. Where the response is a stream that is one JSON array, so is the error. */
const nativeErrorStyle: ErrorStyle = {
  body(error, request) {
    const body = nativeErrorBody(error);
    const isArray = request?.path.endsWith(":streamGenerateContent") && request.query.alt !== "sse";
    return isArray ? [body] : body;
  },
  schema: () => schema,
  head: ({ mayBePaid }) => ({ headers: mayBePaid ? { "x-should-retry": "false" } : {} }),
};

/**
 * The error style of each path, the first match deciding. Paths below `/v1` that belong to native clients are read as
 * those below `/v1beta` before; a path with a verb is native also where no request could be parsed.
 */
const nativeErrorStyles: readonly (readonly [RegExp, ErrorStyle])[] = [
  [
    /^\/v1(beta)?\/models\/.*:streamGenerateContent$/,
    { ...nativeErrorStyle, schema: () => ({ oneOf: [schema, { type: "array", items: schema }] }) },
  ],
  [/^\/(v1beta|upload|download)(\/|$)/, nativeErrorStyle],
  [/^\/v1\/models\/.*(:|%3a)/i, nativeErrorStyle],
];

/** Files of the vendor's API. They stand before the rest of it: its credential guards all paths below `/v1beta`. */
const files: Surface = {
  tag: "files",
  vendor: "google",
  prefix: PATHS.files,
  operations: fileOperations,
  credential: headerOrQueryKey,
};

/** The second path of a download. The key is not taken from its URL. */
const downloads: Surface = {
  tag: "files",
  vendor: "google",
  prefix: "/download",
  operations: [{ ...download, id: "downloadFileAlone", path: PATHS.fileDownloadAlone }],
  credential: headerKey,
};

/** The native real-time API. `{model}:verb` comes before `{model}`, which matches its path, too. */
const realtime: Surface = {
  tag: "realtime",
  vendor: "google",
  prefix: "/v1beta",
  operations: [...generateOperations, createJobOperation, ...modelOperations, ...jobOperations],
  credential: headerOrQueryKey,
  screen: screenModelPath(headerOrQueryKey),
  errorStyles: nativeErrorStyles,
};

const sharedModels: Surface = {
  tag: "realtime",
  vendor: "openai",
  prefix: PATHS.sharedModels,
  operations: sharedModelOperations,
  credential: headerKey,
  screen: screenModelPath(headerKey),
};

/** The vendor's API. */
export const nativeSurfaces: readonly Surface[] = [
  nativeUploads,
  downloads,
  files,
  interactions,
  realtime,
  sharedModels,
];
