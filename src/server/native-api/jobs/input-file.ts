import { ImgbatchError } from "../../../contract/errors.ts";
import type { ApiDeps } from "../../deps.ts";

/**
 * Returns the file of a key whose lines are the input of a job. Throws `JOB_FILE_UNUSABLE` when the key has no such file,
 * and when it is empty.
 */
export async function inputFile(
  _deps: ApiDeps,
  _keyId: string,
  fileName: string,
): Promise<{ fileName: string; blobKey: string }> {
  const param = "batch.inputConfig.fileName";
  throw new ImgbatchError("JOB_FILE_UNUSABLE", `${param}: this key has no file ${fileName}`, { param });
}
