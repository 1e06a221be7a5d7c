import { PATHS } from "../../contract/routes.ts";
import { download } from "../jobs/vendor-files.ts";
import type { Surface } from "../operation.ts";
import { fileOperations } from "./files.ts";
import { generateOperations } from "./generate.ts";
import { createJobOperation, jobOperations } from "./jobs.ts";
import { modelOperations, sharedModelOperations } from "./models.ts";
import { headerKey, headerOrQueryKey, nativeErrorStyles, readVersion, screenModelPath } from "./paths.ts";
import { nativeUploads } from "./uploads.ts";

/** Files of the vendor's API. They stand before the rest of it: its credential guards all paths below `/v1beta`. */
const files: Surface = {
  tag: "files",
  prefix: PATHS.files,
  operations: fileOperations,
  credential: headerOrQueryKey,
};

/** The second path of a download. The key is not taken from its URL. */
const downloads: Surface = {
  tag: "files",
  prefix: "/download",
  operations: [{ ...download, id: "downloadFileAlone", path: PATHS.fileDownloadAlone }],
  credential: headerKey,
};

/** The native real-time API. A verb stands before the model: its path looks like the path of a model. */
const realtime: Surface = {
  tag: "realtime",
  prefix: "/v1beta",
  operations: [...generateOperations, createJobOperation, ...modelOperations, ...jobOperations],
  credential: headerOrQueryKey,
  readPath: readVersion,
  screen: screenModelPath(headerOrQueryKey.authenticate),
  errorStyles: nativeErrorStyles,
};

const sharedModels: Surface = {
  tag: "realtime",
  prefix: PATHS.sharedModels,
  operations: sharedModelOperations,
  credential: headerKey,
  screen: screenModelPath(headerKey.authenticate),
};

/** The vendor's API. */
export const nativeSurfaces: readonly Surface[] = [nativeUploads, downloads, files, realtime, sharedModels];
