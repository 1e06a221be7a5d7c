import { ImgbatchError } from "../../../contract/errors.ts";
import { findFile } from "../../../domain/files/files.ts";
import type { ApiDeps } from "../../deps.ts";

/**
 * Returns the file of a key whose lines are the input of a job, by its name or its URI. Throws `JOB_FILE_UNUSABLE` when the
 * key has no such file, and when it is empty.
 */
export async function inputFile(
  { stores, clock }: Pick<ApiDeps, "stores" | "clock">,
  keyId: string,
  name: string,
): Promise<{ fileName: string; blobKey: string }> {
  const file = await findFile(stores.read, keyId, name, clock.nowMs());
  const param = "batch.inputConfig.fileName";
  const refused = (why: string) => new ImgbatchError("JOB_FILE_UNUSABLE", `${param}: ${why}`, { param });
  if (file === null) throw refused("must be the name of a file that was uploaded with this key");
  if (file.sizeBytes === 0) throw refused("the file is empty");
  return { fileName: `files/${file.id}`, blobKey: file.blobKey };
}
