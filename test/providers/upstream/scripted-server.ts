import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { onTestFinished } from "vitest";
import type { ImageRequest, ReferenceImage } from "../../../src/domain/ports/image-provider.ts";
import {
  DEFAULT_OPTIONS,
  type ImageOptions,
  ProviderError,
} from "../../../src/domain/ports/image-provider.ts";
import { type Clock, systemClock } from "../../../src/kernel/clock.ts";
import type { AdapterDeps } from "../../../src/providers/upstream/adapter.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { listen } from "../../support/listen.ts";

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
  const { url, port, close } = await listen(server);
  onTestFinished(close);
  const scripted: ScriptedServer = { url, port, seen: [], reply };
  return scripted;
}

/** Answers with JSON. */
export function json(body: unknown, status = 200, headers: Record<string, string> = {}): Reply {
  return (_seen, answer) => {
    answer.writeHead(status, { "content-type": "application/json", ...headers });
    answer.end(JSON.stringify(body));
  };
}

/** Answers each request by the first of the rules whose method and path it has, and with 404 else. */
export function byPath(rules: readonly [string, Reply][]): Reply {
  return (seen, answer, socket) => {
    const at = `${seen.method} ${seen.url}`;
    const [, reply = json({ error: { message: at } }, 404)] =
      rules.find(([start]) => at.startsWith(start)) ?? [];
    reply(seen, answer, socket);
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
  const { port, close } = await listen(createServer());
  await close();
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

/** What differs from the usual request: of the options, those that are named. */
export type RequestChanges = Omit<Partial<ImageRequest>, "options"> & { options?: Partial<ImageOptions> };

export function imageRequest({ options = {}, ...changes }: RequestChanges = {}): ImageRequest {
  return {
    model: "image-model",
    prompt: "a red fox",
    outputIndex: 0,
    options: { ...DEFAULT_OPTIONS, size: "2K", ratio: "3:2", keepsRatio: false, ...options },
    pixels: { widthPx: 2528, heightPx: 1696 },
    references: [],
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
