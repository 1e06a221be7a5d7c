import { createHash, randomUUID } from "node:crypto";
import type { Answer, UpstreamRequest } from "./fake-upstream.ts";
import type { JobBook, StoredFile } from "./job-book.ts";
import { fieldOf, nativeErrors, shapeProblem } from "./native.ts";

/** Chunks but the last are multiples of this. */
const GRANULARITY = 262_144;
const FILE_BYTES = 2 * 1024 ** 3;
const UPLOADED_NAME = /^files\/[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/;
const START_FIELDS = { file: { name: true, displayName: true, mimeType: true, sizeBytes: true } } as const;

interface Upload {
  name: string;
  label: string;
  type: string;
  /** The length that the start promised; null when it promised none. */
  length: number | null;
  received: Buffer;
  file: StoredFile | null;
}

export const json = (status: number, body: object, headers: Record<string, string> = {}): Answer => ({
  ...{ status, body: JSON.stringify(body), headers },
});

/** Times as the service writes them, with nine digits of a second. */
export const timeOf = (ms: number) => new Date(ms).toISOString().replace("Z", "405218Z");

/** The files of the vendor's API: uploads in chunks, and what is asked about files. */
export class NativeFiles {
  readonly #book: JobBook;
  readonly #uploads = new Map<string, Upload>();

  constructor(book: JobBook) {
    this.#book = book;
  }

  start({ headers, bytes, body }: UpstreamRequest): Answer {
    const { invalid } = nativeErrors;
    if (headers["x-goog-upload-protocol"] !== "resumable")
      return invalid("Upload protocol is missing or not supported. Use X-Goog-Upload-Protocol: resumable.");
    if (headers["x-goog-upload-command"] !== "start")
      return invalid("Invalid X-Goog-Upload-Command: expected start.");
    const promised = headers["x-goog-upload-header-content-length"];
    if (promised !== undefined && !/^\d+$/.test(String(promised)))
      return invalid("Invalid X-Goog-Upload-Header-Content-Length.");
    if (Number(promised ?? 0) > FILE_BYTES)
      return invalid(`File size exceeds the limit: ${FILE_BYTES} bytes.`);
    if (bytes.length > 0 && (typeof body !== "object" || body === null))
      return invalid("Invalid JSON payload received. Unexpected token.");
    const problem = bytes.length > 0 ? shapeProblem(body, START_FIELDS) : null;
    if (problem) return problem;
    const file = fieldOf(body, "file");
    const name = String(fieldOf(file, "name") ?? `files/${randomUUID().replaceAll("-", "").slice(0, 12)}`);
    if (!UPLOADED_NAME.test(name))
      return invalid(`* CreateFileRequest.file.name: ${name} is not a valid name.`);
    if (this.#book.file(name))
      return nativeErrors.other(409, "ALREADY_EXISTS", `File ${name} already exists.`);
    const type = headers["x-goog-upload-header-content-type"] ?? fieldOf(file, "mimeType");
    if (type === undefined)
      return invalid("The media type is missing: send X-Goog-Upload-Header-Content-Type.");
    const upload: Upload = {
      ...{ name, label: String(fieldOf(file, "displayName") ?? ""), type: String(type) },
      ...{ length: promised === undefined ? null : Number(promised), received: Buffer.alloc(0), file: null },
    };
    const id = randomUUID();
    this.#uploads.set(id, upload);
    const url = `http://${headers.host}/upload/v1beta/files?upload_id=${id}&upload_protocol=resumable`;
    const granularity = { "x-goog-upload-chunk-granularity": String(GRANULARITY) };
    return json(200, {}, { "x-goog-upload-url": url, "x-goog-upload-status": "active", ...granularity });
  }

  /** A chunk needs no key: the id in the URL is secret. */
  chunk(request: UpstreamRequest): Answer {
    const upload = this.#uploads.get(
      new URL(request.path, "http://files").searchParams.get("upload_id") ?? "",
    );
    if (upload === undefined) return nativeErrors.other(404, "NOT_FOUND", "Upload session not found.");
    const answer = this.#chunk(upload, request);
    const status = upload.file ? "final" : "active";
    const size = { "x-goog-upload-size-received": String(upload.received.length) };
    return { ...answer, headers: { "x-goog-upload-status": status, ...size, ...answer.headers } };
  }

  #chunk(upload: Upload, { headers, bytes }: UpstreamRequest): Answer {
    const { invalid } = nativeErrors;
    const commands = String(headers["x-goog-upload-command"] ?? "").split(/, ?/);
    if (!commands.every((command) => ["upload", "finalize", "query"].includes(command)))
      return invalid(`Invalid X-Goog-Upload-Command: ${commands.join(", ")}.`);
    if (upload.file) return json(200, { file: this.shown(upload.file) });
    if (commands.includes("query")) return json(200, {});
    const isLast = commands.includes("finalize");
    if (commands.includes("upload")) {
      const offset = String(headers["x-goog-upload-offset"] ?? "");
      if (!/^\d+$/.test(offset) || Number(offset) > upload.received.length)
        return invalid(`Invalid X-Goog-Upload-Offset: ${offset}; ${upload.received.length} bytes are here.`);
      if (!isLast && bytes.length % GRANULARITY !== 0)
        return invalid(`Chunks must be multiples of ${GRANULARITY} bytes, except the last.`);
      if (Number(offset) + bytes.length > (upload.length ?? FILE_BYTES))
        return invalid("More bytes than X-Goog-Upload-Header-Content-Length promised.");
      upload.received = Buffer.concat([upload.received.subarray(0, Number(offset)), bytes]);
    }
    if (!isLast) return json(200, {});
    const { name, label, type, length, received } = upload;
    if (received.length === 0 || received.length !== (length ?? received.length))
      return invalid(`Upload is incomplete: ${received.length} of ${length} bytes are here.`);
    upload.file = { name, label, type, bytes: received, createdAt: this.#book.now };
    this.#book.files.set(name, upload.file);
    return json(200, { file: this.shown(upload.file) });
  }

  get(name: string): Answer {
    const id = name.replace("files/", "");
    if (id.length > 40) return nativeErrors.invalid(`File ID ${id} cannot be more than 40 characters.`);
    const file = this.#book.file(name);
    return file ? json(200, this.shown(file)) : noFile(name);
  }

  list(query: URLSearchParams): Answer {
    const there = [...this.#book.files.values()].filter(({ name }) => this.#book.file(name));
    return page(there, query, 10, "files", (file) => this.shown(file));
  }

  delete(name: string): Answer {
    if (!this.#book.file(name)) return noFile(name);
    this.#book.deleteFile(name);
    return json(200, {});
  }

  shown({ name, label, type, bytes, createdAt }: StoredFile): object {
    const hash = createHash("sha256").update(bytes).digest("hex");
    return {
      ...{ name, ...(label && { displayName: label }), mimeType: type, sizeBytes: String(bytes.length) },
      ...{ createTime: timeOf(createdAt), updateTime: timeOf(createdAt) },
      expirationTime: timeOf(createdAt + this.#book.keptMs),
      sha256Hash: Buffer.from(hash).toString("base64"),
      uri: `https://generativelanguage.googleapis.com/v1beta/${name}`,
      ...{ state: "ACTIVE", source: "UPLOADED" },
    };
  }
}

/** A file that does not exist and one of somebody else get the same answer. */
export function noFile(name: string): Answer {
  const message = `You do not have permission to access the File ${name.replace("files/", "")} or it may not exist.`;
  return nativeErrors.other(403, "PERMISSION_DENIED", message);
}

/** One page of a list. An empty list has no field, and the last page no token. */
export function page<T>(
  all: readonly T[],
  query: URLSearchParams,
  usual: number,
  field: string,
  show: (one: T) => object,
): Answer {
  const size = Number(query.get("pageSize") ?? usual);
  if (!Number.isInteger(size) || size < 0) return nativeErrors.invalid("Invalid value at 'page_size'.");
  const token = query.get("pageToken") ?? "";
  const [, at] = /^at (\d+)$/.exec(Buffer.from(token, "base64url").toString()) ?? [];
  const start = Number(at ?? 0);
  if (token !== "" && at === undefined) return nativeErrors.invalid("Invalid page token.");
  const end = start + Math.min(size || usual, 100);
  const shown = all.slice(start, end).map(show);
  return json(200, {
    ...(shown.length > 0 && { [field]: shown }),
    ...(end < all.length && { nextPageToken: Buffer.from(`at ${end}`).toString("base64url") }),
  });
}
