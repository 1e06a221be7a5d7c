import type { ServiceErrorCode } from "../contract/errors.ts";
import { accountApi } from "./account/operations.ts";
import { batchErrorStyle } from "./batch-api/error-style.ts";
import { batchApi } from "./batch-api/operations.ts";
import { consoleApis } from "./console/operations.ts";
import { monitoring } from "./monitoring/operations.ts";
import { nativeDownloads, nativeFiles, nativeUploads } from "./native-api/files/operations.ts";
import { nativeApi, sharedModelList } from "./native-api/operations.ts";
import { openaiBatches } from "./openai-batches/operations.ts";
import { openaiImages } from "./openai-images/operations.ts";
import type { ErrorStyle, Operation, Surface } from "./operation.ts";

/** Everything that the service offers over HTTP. Router, 405 responses, OpenAPI and metric labels are made from it. */
export const SURFACES: readonly Surface[] = [
  batchApi,
  accountApi,
  ...consoleApis,
  nativeUploads,
  nativeDownloads,
  nativeFiles,
  nativeApi,
  sharedModelList,
  ...openaiImages,
  ...openaiBatches,
  monitoring,
];

/** The surfaces of a process that takes no requests of callers. */
export const WORKER_SURFACES: readonly Surface[] = [monitoring];

/** An operation together with its surface. */
export interface PlacedOperation extends Operation {
  surface: Surface;
}

/** The operations of all surfaces. */
export const OPERATIONS: readonly PlacedOperation[] = SURFACES.flatMap((surface) =>
  surface.operations.map((operation) => ({ ...operation, surface })),
);

const STYLES = SURFACES.flatMap(({ errorStyles = [] }) => errorStyles);

/** Every operation can return these. */
const EVERYWHERE: readonly ServiceErrorCode[] = ["MISDIRECTED_REQUEST", "INTERNAL_ERROR"];

/** The codes of all errors that an operation can return. */
export function errorsOf({ surface, errors = [] }: PlacedOperation): ServiceErrorCode[] {
  return [...(surface.credential?.errors ?? []), ...errors, ...EVERYWHERE];
}

/** The error style of a path, whether or not an operation has it. */
export function errorStyleOf(path: string): ErrorStyle {
  return STYLES.find(([pattern]) => pattern.test(path))?.[1] ?? batchErrorStyle;
}
