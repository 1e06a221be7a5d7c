import { ProviderError } from "../../domain/ports/image-provider.ts";
import type { Clock } from "../../kernel/clock.ts";
import { ambiguous } from "../upstream/classify.ts";
import type { UpstreamHttp } from "../upstream/http.ts";
import { textAt } from "../upstream/read-json.ts";
import { bytesBody, jsonBody, type RequestBody } from "../upstream/request-body.ts";
import { withTimeLimit } from "../upstream/time-limit.ts";

const CHUNK_BYTES = 8 * 1024 * 1024;
/** A chunk that takes longer has not arrived. */
const CALL_MS = 300_000;
const MOST_TRIES = 4;
const AGAIN_MS = 1000;
const FILE_NAME = /^files\/[\w.-]{1,200}$/;
const MEDIA_TYPE = "application/jsonl";

interface Target {
  http: UpstreamHttp;
  apiVersion: string;
  /** With the key. Chunks are sent without it: the address of an upload is secret. */
  headers: Readonly<Record<string, string>>;
  clock: Clock;
}

/**
 * Uploads a file in chunks (the vendor's resumable protocol) and returns its name. A chunk that may not have arrived is
 * sent again at its place. Rejects with `ProviderError`.
 */
export async function uploadFile(
  target: Target,
  { label, body }: { label: string; body: RequestBody },
  signal: AbortSignal,
): Promise<string> {
  const path = await start(target, label, await body.length(), signal);
  let offset = 0;
  let name: string | null = null;
  for await (const { bytes, isLast } of chunks(body)) {
    name = await send(target, { path, bytes, offset, isLast }, signal);
    offset += bytes.length;
  }
  if (name === null || !FILE_NAME.test(name))
    throw ambiguous(target.http.name, "an upload without the name of its file", 200);
  return name;
}

/** Returns the path of the upload. Its host is ours, whatever the answer says: the upstream may not know its own. */
async function start(
  { http, apiVersion, headers, clock }: Target,
  label: string,
  length: number,
  signal: AbortSignal,
): Promise<string> {
  const upload = {
    "x-goog-upload-protocol": "resumable",
    "x-goog-upload-command": "start",
    "x-goog-upload-header-content-length": String(length),
    "x-goog-upload-header-content-type": MEDIA_TYPE,
  };
  const request = {
    method: "POST",
    path: `/upload/${apiVersion}/files`,
    headers: { ...headers, ...upload },
    body: jsonBody({ file: { displayName: label, mimeType: MEDIA_TYPE } }),
    mayBeEmpty: true,
  } as const;
  const answer = await withTimeLimit(limitOf(http, clock), signal, (inTime) =>
    http.exchange(request, inTime),
  );
  const url = answer.headers.get("x-goog-upload-url") ?? "";
  if (!URL.canParse(url, http.baseUrl)) throw ambiguous(http.name, "an upload without an address", 200);
  const { pathname, search } = new URL(url, http.baseUrl);
  const base = new URL(http.baseUrl).pathname.replace(/\/+$/, "");
  // A gateway in front of the upstream may have a path that the upstream does not know.
  return (pathname.startsWith(`${base}/`) ? pathname.slice(base.length) : pathname) + search;
}

function limitOf({ name }: UpstreamHttp, clock: Clock) {
  const message = `${name} did not take a part of an upload within ${CALL_MS / 1000} s.`;
  const late = () => new ProviderError("PROVIDER_TIMEOUT", message, { trouble: "ambiguous" });
  return { clock, ms: CALL_MS, late };
}

async function send(
  { http, clock }: Target,
  { path, bytes, offset, isLast }: { path: string; bytes: Buffer; offset: number; isLast: boolean },
  signal: AbortSignal,
): Promise<string | null> {
  const headers = {
    "x-goog-upload-command": isLast ? "upload, finalize" : "upload",
    "x-goog-upload-offset": String(offset),
  };
  const body = bytesBody(MEDIA_TYPE, bytes);
  for (let tries = 1; ; tries++) {
    try {
      const request = { method: "POST", path, headers, body, mayBeEmpty: !isLast } as const;
      const answer = await withTimeLimit(limitOf(http, clock), signal, (inTime) =>
        http.json(request, inTime),
      );
      return textAt(answer, "file", "name");
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      const { upstreamStatus: status, trouble } = error;
      // The part may have arrived the first time. Another upload costs nothing.
      if (tries > 1 && status !== null && status >= 400 && status < 500 && trouble !== "limited")
        throw ambiguous(http.name, `HTTP ${status} to a part that was sent again`, status);
      if (!error.retryable || tries >= MOST_TRIES) throw error;
      await clock.sleep(AGAIN_MS * 2 ** (tries - 1), signal);
    }
  }
}

/** The body in chunks of 8 MiB, the last one shorter. */
async function* chunks(body: RequestBody): AsyncGenerator<{ bytes: Buffer; isLast: boolean }> {
  let pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body.open()) {
    pieces.push(piece);
    length += piece.length;
    if (length <= CHUNK_BYTES) continue;
    let whole = Buffer.concat(pieces, length);
    // Something is always kept, for the last chunk.
    for (; whole.length > CHUNK_BYTES; whole = whole.subarray(CHUNK_BYTES))
      yield { bytes: whole.subarray(0, CHUNK_BYTES), isLast: false };
    pieces = [Buffer.from(whole)];
    length = whole.length;
  }
  yield { bytes: Buffer.concat(pieces, length), isLast: true };
}
