import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import type { LocalService } from "../../src/service/start-service.ts";

/** The bytes that came back over a connection, read to its end. */
export interface RawAnswer {
  status: number;
  headers: Map<string, string>;
  body: Buffer;
  /** Everything, also behind the first answer. */
  text: string;
}

/** Sends bytes over a connection of its own and reads until the service closes it. Null when nothing came back. */
export function exchange(url: string, bytes: string | Uint8Array): Promise<RawAnswer | null> {
  return converse(url, (socket) => socket.write(bytes));
}

/** Like `exchange`, for senders that take their time. */
export function converse(url: string, send: (socket: Socket) => void): Promise<RawAnswer | null> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1", () => send(socket));
    const chunks: Buffer[] = [];
    socket.on("data", (chunk) => chunks.push(chunk));
    socket.on("error", () => {});
    socket.once("close", () => resolve(parse(Buffer.concat(chunks))));
  });
}

function parse(bytes: Buffer): RawAnswer | null {
  const end = bytes.indexOf("\r\n\r\n");
  if (end < 0) return null;
  const [first = "", ...lines] = bytes.subarray(0, end).toString("latin1").split("\r\n");
  const headers = new Map(
    lines.map((line) => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const;
    }),
  );
  const length = Number(headers.get("content-length") ?? bytes.length);
  const body = bytes.subarray(end + 4, end + 4 + length);
  return { status: Number(first.split(" ")[1]), headers, body, text: bytes.toString("latin1") };
}

/** The text of a request that asks to be the last on its connection. */
export function requestText(
  method: string,
  target: string,
  headers: readonly (readonly [string, string])[] = [],
  body: string | Uint8Array = "",
): Buffer {
  const lines = [["Host", "localhost"], ["Connection", "close"], ...headers].map(
    ([name, value]) => `${name}: ${value}`,
  );
  const head = Buffer.from(`${method} ${target} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`, "latin1");
  return Buffer.concat([head, Buffer.from(body)]);
}

/** A request whose body the service waits for, which never comes. It holds up a stop of the server for its grace. */
export async function openConnection({ url, credentials }: LocalService): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  onTestFinished(() => void socket.destroy());
  const headers = [
    ["Authorization", `Bearer ${credentials.api_key}`],
    ["Content-Type", "application/json"],
    ["Content-Length", "10"],
    ["Expect", "100-continue"],
  ] as const;
  socket.write(requestText("POST", "/v1/images/batches", headers));
  await once(socket, "data");
  return socket;
}
