import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { onTestFinished } from "vitest";
import type { ImageRequest, ReferenceImage } from "../../../src/domain/ports/image-provider.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import type { AdapterDeps } from "../../../src/providers/upstream/adapter.ts";
import { FakeClock } from "../../support/fake-clock.ts";

export interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: Buffer;
  text: string;
}

export type Reply = (seen: Seen, answer: ServerResponse, socket: Socket) => void;

export interface ScriptedServer {
  url: string;
  port: number;
  seen: Seen[];
  /** Answers every request from now on. */
  reply: Reply;
}

/** Starts a server that answers as the test says, and ends with it. */
export async function scriptedServer(reply: Reply = json({})): Promise<ScriptedServer> {
  const sockets = new Set<Socket>();
  const server = createServer(async (request, answer) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return;
    }
    const body = Buffer.concat(chunks);
    const { method = "", url = "", headers } = request;
    const seen = { method, url, headers, body, text: body.toString() };
    scripted.seen.push(seen);
    scripted.reply(seen, answer, request.socket);
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.once("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const scripted: ScriptedServer = { url: `http://127.0.0.1:${port}`, port, seen: [], reply };
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return scripted;
}

/** Answers with JSON. */
export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Reply {
  return (_seen, answer) => {
    answer.writeHead(status, { "content-type": "application/json", ...headers });
    answer.end(JSON.stringify(body));
  };
}

/** Answers with these bytes. */
export function bytes(body: Buffer | string, status = 200, headers: Record<string, string> = {}): Reply {
  return (_seen, answer) => answer.writeHead(status, headers).end(body);
}

export function depsWith(secrets: Record<string, string> = {}, clock: Clock = new FakeClock()): AdapterDeps {
  return { clock, secret: (name) => secrets[name] || null };
}

/** A port on which nobody listens. */
export async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The `ProviderError` that a promise rejects with. Any other outcome fails the test. */
export async function providerError(promise: Promise<unknown>): Promise<ProviderError> {
  const outcome = await promise.then(
    (value) => new Error(`resolved with ${JSON.stringify(value)}`),
    (error: unknown) => error,
  );
  if (outcome instanceof ProviderError) return outcome;
  throw outcome;
}

export const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1, 2, 3, 4]);
export const JPEG = Buffer.from([0xff, 0xd8, 0xff, 0xe0, 9, 8, 7]);

export function reference(
  content: Buffer,
  mimeType: ReferenceImage["mimeType"] = "image/png",
): ReferenceImage {
  return { read: async () => content, lend: (work) => work(content), mimeType };
}

export function imageRequest(changes: Partial<ImageRequest> = {}): ImageRequest {
  return {
    model: "image-model",
    prompt: "a red fox",
    outputIndex: 0,
    tier: "2K",
    ratio: "3:2",
    size: { widthPx: 2528, heightPx: 1696 },
    mimeType: "image/png",
    references: [],
    storedReferences: [],
    attempt: 1,
    seed: 4711,
    origin: "batch",
    ...changes,
  };
}

export const never = new AbortController().signal;

/** Pauses between tries are over at once; time limits are not. */
export const impatient: Clock = {
  ...systemClock,
  sleep: (ms, signal) => systemClock.sleep(ms <= 10_000 ? 1 : ms, signal),
};
