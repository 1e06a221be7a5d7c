import { errorBody, type ServiceErrorCode } from "../contract/errors.ts";
import type { FindGeneratedFile } from "../domain/files/uploads.ts";
import type { TakeInDeps } from "../domain/jobs/take-in.ts";
import { batchApi } from "./batch-api/batches.ts";
import { ticketDownloads } from "./batch-api/images.ts";
import { accountApi } from "./console/account.ts";
import { consoleApis } from "./console/sign-in.ts";
import type { ApiDeps } from "./deps.ts";
import type { ErrorStyle } from "./http/errors.ts";
import type { LineRules } from "./jobs/lines.ts";
import { monitoring } from "./monitoring/readiness.ts";
import { nativeLines, resultFile as nativeResultFile } from "./native-api/jobs.ts";
import { nativeSurfaces } from "./native-api/operations.ts";
import { openaiBatches, openaiLines, resultFile as openaiResultFile } from "./openai/batches.ts";
import { openaiFiles } from "./openai/files.ts";
import { openaiImages } from "./openai/images.ts";
import { openaiResponses } from "./openai/responses.ts";
import type { Operation, Surface } from "./operation.ts";
import { testApi } from "./testing/operations.ts";

/** Errors of the batch API, and of every path that belongs to no other surface. */
const batchErrorStyle: ErrorStyle = {
  body: errorBody,
  schema: (codes) => ({
    allOf: [
      { $ref: "#/components/schemas/Error" },
      { properties: { error: { properties: { code: { enum: codes } } } } },
    ],
  }),
};

/** The reader of each surface that takes batch jobs. A worker calls them, some time after the request. */
export function lineReaders(rules: LineRules): TakeInDeps["lineReaders"] {
  return { native: nativeLines(rules), openai: openaiLines(rules) };
}

/** Finds the files that the surfaces make of ended batch jobs. */
export function generatedFiles(deps: Pick<ApiDeps, "stores" | "blobs">): FindGeneratedFile {
  return async (keyId, id) =>
    (await nativeResultFile(deps, keyId, id)) ?? (await openaiResultFile(deps, keyId, id));
}

/** Everything that the service offers over HTTP. Router, 405 responses, OpenAPI and metric labels are made from it. */
export const SURFACES: readonly Surface[] = [
  batchApi,
  accountApi,
  ...consoleApis,
  ticketDownloads,
  ...nativeSurfaces,
  ...openaiImages,
  openaiResponses,
  openaiFiles,
  openaiBatches,
  testApi,
  monitoring,
];

/** An operation together with its surface. */
interface PlacedOperation extends Operation {
  surface: Surface;
}

/** The operations of all surfaces. */
export const OPERATIONS: readonly PlacedOperation[] = SURFACES.flatMap((surface) =>
  surface.operations.map((operation) => ({ ...operation, surface })),
);

const STYLES = SURFACES.flatMap(({ errorStyles = [] }) => errorStyles);

/** Every operation can return these. `BATCH_IMAGE_INVALID_QUERY`: a key in the URL. */
const EVERYWHERE: readonly ServiceErrorCode[] = [
  "BATCH_IMAGE_INVALID_QUERY",
  "MISDIRECTED_REQUEST",
  "INTERNAL_ERROR",
];

/** The codes of all errors that an operation can return. */
export function errorsOf({ surface, errors = [] }: PlacedOperation): ServiceErrorCode[] {
  return [...new Set([...(surface.credential?.errors ?? []), ...errors, ...EVERYWHERE])];
}

/** The error style of a path, whether or not an operation has it. */
export function errorStyleOf(path: string): ErrorStyle {
  return STYLES.find(([pattern]) => pattern.test(path))?.[1] ?? batchErrorStyle;
}
