import type { NativeBody } from "../../src/contract/native-api.ts";
import type { TestService } from "./service.ts";

export const KEY_HEADER = "x-vendorx-api-key";

/** The state and size that the headers of an answer tell. */
export function stateOf(answer: Response): [number, string | null, string | null] {
  const header = (name: string) => answer.headers.get(`x-goog-upload-${name}`);
  return [answer.status, header("status"), header("size-received")];
}

export interface Start {
  body?: unknown;
  headers?: Record<string, string>;
  prefix?: string;
  key?: string;
}

/** Begins an upload with the local key. */
export function start(service: TestService, { body = {}, headers = {}, prefix, key }: Start = {}) {
  return fetch(`${service.url}/upload${prefix ?? "/v1beta"}/files`, {
    method: "POST",
    headers: {
      [KEY_HEADER]: key ?? service.credentials.api_key,
      "x-goog-upload-protocol": "resumable",
      "x-goog-upload-command": "start",
      ...headers,
    },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

export async function urlOf(answer: Response): Promise<string> {
  await answer.arrayBuffer();
  return answer.headers.get("x-goog-upload-url") ?? "";
}

/** Sends a command to an upload, without any key. */
export function send(
  url: string,
  command: string,
  offset: number | null = null,
  bytes: Buffer | string = "",
) {
  const headers: Record<string, string> = {
    "x-goog-upload-command": command,
    // As the vendor's libraries send it, whatever the bytes are.
    "content-type": "application/json",
  };
  if (offset !== null) headers["x-goog-upload-offset"] = String(offset);
  return fetch(url, {
    method: "POST",
    headers,
    body: typeof bytes === "string" ? bytes : Uint8Array.from(bytes),
  });
}

export async function fileOf(answer: Response): Promise<NativeBody<"NativeFile">> {
  const { file } = (await answer.json()) as { file: NativeBody<"NativeFile"> };
  return file;
}

/** Uploads bytes in one chunk. */
export async function upload(
  service: TestService,
  bytes: Buffer | string,
  file: object = {},
  options: Start = {},
): Promise<NativeBody<"NativeFile">> {
  const url = await urlOf(await start(service, { ...options, body: { file } }));
  return fileOf(await send(url, "upload, finalize", 0, bytes));
}

export async function listOf(answer: Response): Promise<NativeBody<"NativeFileList">> {
  return (await answer.json()) as NativeBody<"NativeFileList">;
}

/** Asks for something below the base URL with a key in the vendor's header. */
export function ask(service: TestService, path: string, init: RequestInit & { key?: string } = {}) {
  const headers = { [KEY_HEADER]: init.key ?? service.credentials.api_key, ...init.headers };
  return fetch(service.url + path, { ...init, headers });
}
