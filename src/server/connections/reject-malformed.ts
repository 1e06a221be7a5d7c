import type { Server } from "node:http";
import type { Duplex } from "node:stream";
import { ImgbatchError, type ServiceErrorCode } from "../../contract/errors.ts";
import { REQUEST_ID_HEADER } from "../../contract/routes.ts";
import { randomIds } from "../../kernel/ids.ts";
import type { Log } from "../../kernel/log.ts";
import { errorStyleOf } from "../surfaces.ts";

/** After the response the sender gets this long to read it. */
const LINGER_MS = 2000;
const MAX_LINE_BYTES = 1024;

/**
 * Responds to bytes that never become a request (not HTTP, headers too large or too slow, `CONNECT`) with an error body
 * and a request id, and closes the connection. The path decides on the style of the body, where it can still be read.
 */
export function rejectMalformed(server: Server, log: Log): void {
  server.on("clientError", (fault: ClientFault, socket) =>
    refuse(new ImgbatchError(codeOf(fault)), socket, { log, path: pathOf(fault) }),
  );
  server.on("connect", (_request, socket) =>
    refuse(new ImgbatchError("NOT_FOUND"), socket, { log, path: "" }),
  );
}

/** `rawPacket` is what the parser was reading when it gave up. */
type ClientFault = NodeJS.ErrnoException & { rawPacket?: Buffer };

/** Empty when the packet does not begin with the first line of a request. */
function pathOf({ rawPacket }: ClientFault): string {
  const head = rawPacket?.subarray(0, MAX_LINE_BYTES).toString("latin1") ?? "";
  return /^[A-Z]+ (\/[^ ?\r\n]*)[ ?]/.exec(head)?.[1] ?? "";
}

function codeOf({ code = "" }: ClientFault): ServiceErrorCode {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return "REQUEST_TIMEOUT";
  return code === "HPE_HEADER_OVERFLOW" ? "REQUEST_HEADERS_TOO_LARGE" : "MALFORMED_REQUEST";
}

function refuse(error: ImgbatchError, socket: Duplex, options: { log: Log; path: string }): void {
  // The other side went away, or an answer is on its way already: more bytes would be taken for a part of it.
  if (!socket.writable || hasBegunAnswer(socket)) {
    socket.destroy();
    return;
  }
  const requestId = randomIds.requestId();
  const body = JSON.stringify(errorStyleOf(options.path).body(error));
  const head = [
    `HTTP/1.1 ${error.httpStatus} ${REASONS[error.httpStatus] ?? "Error"}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `${REQUEST_ID_HEADER}: ${requestId}`,
    "Connection: close",
  ];
  const facts = { code: error.code, status: error.httpStatus, request_id: requestId };
  options.log.info("refused bytes that are not an HTTP request", facts);
  socket.on("error", () => {});
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  // Further bytes are dropped, so that a reset does not destroy the response.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once("close", () => clearTimeout(timer));
}

const REASONS: Record<number, string> = {
  400: "Bad Request",
  404: "Not Found",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};

/** Node keeps the answer that a socket is busy with here. */
function hasBegunAnswer(socket: Duplex): boolean {
  const { _httpMessage } = socket as Duplex & { _httpMessage?: { headersSent: boolean } | null };
  return _httpMessage?.headersSent === true;
}
