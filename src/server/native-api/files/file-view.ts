import type { Request } from "express";
import type { NativeFile } from "../../../contract/native-jobs.ts";
import { PATHS } from "../../../contract/routes.ts";
import type { FileRecord } from "../../../domain/ports/files.ts";
import type { ApiDeps } from "../../deps.ts";
import { publicUrlOf } from "../../public-url.ts";

/** A file as the vendor's API shows it. */
export function fileView(deps: Pick<ApiDeps, "server">, request: Request, file: FileRecord): NativeFile {
  const { id, displayName, createdAtMs, expiresAtMs } = file;
  const createTime = new Date(createdAtMs).toISOString();
  return {
    name: `files/${id}`,
    ...(displayName === null ? {} : { displayName }),
    mimeType: file.mimeType,
    sizeBytes: String(file.sizeBytes),
    createTime,
    updateTime: createTime,
    expirationTime: new Date(expiresAtMs).toISOString(),
    // The vendor encodes the digits, not the bytes.
    sha256Hash: Buffer.from(file.sha256).toString("base64"),
    uri: `${publicUrlOf(deps, request)}${PATHS.files}/${id}`,
    state: "ACTIVE",
    source: "UPLOADED",
  };
}
