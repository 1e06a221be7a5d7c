import type { Request, Response } from "express";
import type { Answer } from "../operation.ts";
import { goneSignal, onEnded } from "./exchange.ts";

/** Parameters of a download that may be unchanged, or wanted in parts. */
export const conditions = ["IfNoneMatch"] as const;
export const ranges = [...conditions, "Range", "IfRange"] as const;

const partOfDownload = ["ETag", "AcceptRanges", "CacheControl", "NoSniff"];
/** The response of 304. */
export const unchanged: Answer = {
  description: "Unchanged since the ETag of `If-None-Match`.",
  headers: ["ETag"],
};
const unsatisfiable: Answer = { description: "The range begins after the end.", headers: ["ContentRange"] };

/** The successful responses of a download. */
export function downloadAnswers(what: string, bytes: readonly string[]): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return {
    200: { description: what, bytes, headers },
    206: { description: "The range that was asked for.", bytes, headers: [...headers, "ContentRange"] },
    304: unchanged,
    416: unsatisfiable,
  };
}

/** The answers to `HEAD` of a download. */
export function headAnswers(what: string): Record<number, Answer> {
  const headers = ["ContentLength", "ContentDisposition", ...partOfDownload];
  return { 200: { description: `The headers of ${what}.`, headers }, 304: unchanged };
}

/**
 * Sends the bytes as the body of a response, and ends it. The next bytes are asked for when the system has taken the ones
 * before, so that their memory can be used again. Returns whether all were sent, and false when the reader goes away.
 * Rejects when the bytes do; a connection on which some were sent is broken then.
 */
export async function sendBytes(response: Response, bytes: AsyncIterable<Uint8Array>): Promise<boolean> {
  const gone = goneSignal(response);
  const ended = new Promise<boolean>((resolve) => onEnded(response, resolve));
  try {
    for await (const piece of bytes) {
      if (!(await isTaken(response, piece, gone))) return ended;
    }
  } catch (error) {
    if (response.headersSent) response.destroy();
    throw error;
  }
  response.end();
  // A response that waits behind another one (pipelining) does not end by itself.
  return ended;
}

/** Waits until the system has taken the bytes. Returns false when the reader goes away before. */
function isTaken(response: Response, bytes: Uint8Array, gone: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const leave = () => resolve(false);
    if (gone.aborted) return leave();
    gone.addEventListener("abort", leave, { once: true });
    response.write(bytes, (error) => {
      gone.removeEventListener("abort", leave);
      resolve(!error);
    });
  });
}

/** Something to download whose size and identity are known before the first byte. */
interface Download {
  sizeBytes: number;
  /** Without quotes; strong. */
  etag: string;
  mimeType: string;
  /** The name that a browser saves it under. */
  fileName: string;
  /**
   * Bytes `start` to `end`, inclusive. Each part is valid until the next one is asked for. An error before the first part
   * becomes the response.
   */
  open(range: { start: number; end: number }): Promise<AsyncIterable<Uint8Array>> | AsyncIterable<Uint8Array>;
}

/**
 * Sends a download: the whole, one range of it (`Range`, `If-Range`), only its headers (`HEAD`), or 304 when it has not
 * changed (`If-None-Match`). `takeSlot` is called before bytes are sent, and the function that it returns afterwards.
 * Returns whether the last byte of the download was sent.
 */
export async function sendDownload(
  request: Request,
  response: Response,
  download: Download,
  takeSlot: () => () => void,
): Promise<boolean> {
  const { sizeBytes } = download;
  const etag = `"${download.etag}"`;
  response.setHeader("Content-Type", download.mimeType);
  response.setHeader("Content-Disposition", dispositionOf(download.fileName));
  response.setHeader("ETag", etag);
  response.setHeader("Accept-Ranges", "bytes");
  response.setHeader("Cache-Control", "private, max-age=300");
  response.setHeader("X-Content-Type-Options", "nosniff");
  if (matchesEtag(request.get("if-none-match"), etag)) {
    response.status(304).end();
    return false;
  }
  const range = requestedRange(request, sizeBytes, etag);
  if (range === "unsatisfiable") {
    response.setHeader("Content-Range", `bytes */${sizeBytes}`);
    response.removeHeader("Content-Disposition");
    response.status(416).end();
    return false;
  }
  const { start, end } = range ?? { start: 0, end: sizeBytes - 1 };
  if (request.method === "HEAD") {
    response.setHeader("Content-Length", sizeBytes);
    response.status(200).end();
    return false;
  }
  const leaveSlot = takeSlot();
  try {
    const bytes = await download.open({ start, end });
    if (range) response.setHeader("Content-Range", `bytes ${start}-${end}/${sizeBytes}`);
    response.setHeader("Content-Length", end - start + 1);
    response.status(range ? 206 : 200);
    return (await sendBytes(response, bytes)) && end === sizeBytes - 1;
  } finally {
    leaveSlot();
  }
}

/** Always in both forms, the plain one and the one for names of any script (RFC 6266). */
function dispositionOf(fileName: string): string {
  const plain = fileName.replace(/[^\x20-\x7e]|["\\%]/gu, "_");
  const encoded = encodeURIComponent(fileName).replace(
    /['()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

/**
 * Whether `If-None-Match` has the ETag (RFC 9110, section 13.1.2). Not `request.fresh`: it ignores the header beside
 * `Cache-Control: no-cache`, which `fetch` always sends with it.
 */
export function matchesEtag(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header.split(",").some((tag) => tag.trim() === "*" || tag.trim().replace(/^W\//, "") === etag);
}

/**
 * The one range that the request asks for; null when the whole is sent, as for several ranges and for headers that are
 * not valid (RFC 9110, section 14.2). Not `range-parser`: it returns "unsatisfiable" for a suffix that is longer than the
 * file, which stands for the whole file (section 14.1.3), and for a range that ends before it begins.
 */
function requestedRange(
  request: Request,
  sizeBytes: number,
  etag: string,
): { start: number; end: number } | "unsatisfiable" | null {
  const header = request.get("range");
  if (header === undefined || request.method === "HEAD") return null;
  const condition = request.get("if-range");
  if (condition !== undefined && condition !== etag) return null;
  const match = /^bytes=(\d*)-(\d*)$/i.exec(header.trim());
  const [, first = "", last = ""] = match ?? [];
  if (!match || (first === "" && last === "")) return null;
  if (first === "") {
    const length = Number(last);
    return length === 0 ? "unsatisfiable" : { start: Math.max(0, sizeBytes - length), end: sizeBytes - 1 };
  }
  const start = Number(first);
  const end = last === "" ? sizeBytes - 1 : Math.min(Number(last), sizeBytes - 1);
  if (last !== "" && Number(last) < start) return null;
  return start >= sizeBytes ? "unsatisfiable" : { start, end };
}
