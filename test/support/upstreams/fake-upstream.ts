import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { ImageType, Size } from "./images.ts";

/** One request that came to the fake. */
export interface UpstreamRequest {
  kind: RequestKind;
  method: string;
  /** With the query. */
  path: string;
  headers: IncomingMessage["headers"];
  /** JSON parsed, a form as `Form`, anything else as text; undefined until it was read. */
  body: unknown;
  /** The bytes of the body as they came; empty until it was read. */
  bytes: Buffer;
  /** The prompt of a request for images; null until the body was read. */
  prompt: string | null;
  /** When it came, in ms since 1970. */
  time: number;
  /** How many images were made for it. */
  images: number;
  /** The caller went away before the answer was whole. */
  isAbandoned: boolean;
}

export type RequestKind = "images" | "files" | "models" | "other" | JobRequestKind;

/**
 * The requests of services that take batch jobs. `upload`: a file, or the start of one that comes in chunks; `poll`:
 * one job; `list`: jobs; `delete`: a file or a job. Questions about files are of the kind `files`.
 */
export type JobRequestKind =
  | "upload"
  | "chunk"
  | "create"
  | "poll"
  | "list"
  | "cancel"
  | "download"
  | "delete";

/** A `multipart/form-data` body, in the order of its parts. */
export interface Form {
  fields: [name: string, value: string][];
  files: { name: string; filename: string; type: string; bytes: Buffer }[];
}

export function isForm(body: unknown): body is Form {
  return typeof body === "object" && body !== null && "files" in body && "fields" in body;
}

export interface Answer {
  status: number;
  headers?: Record<string, string>;
  body: string | Buffer;
  /** The images in it, which are billed. */
  images?: Buffer[];
}

/** How a good answer differs from the usual one. Each fake reads what its service knows. */
export interface Twist {
  /** How many images; default 1, or what the request asks for. */
  images?: number;
  /** The type of the bytes; default png, or what the request asks for. */
  type?: ImageType;
  /** The type of the bytes that the answer names. */
  label?: string;
  size?: Size;
  /** Sent in place of an image. */
  bytes?: Buffer;
  /** Interim images before the last one. */
  thoughts?: number;
  /** Other fields of the answer's top level. */
  more?: object;
  /** Addresses in place of bytes; `true`: files of the fake itself. */
  url?: true | string;
}

/** The special traits of one service. */
export interface ImageService {
  kindOf(method: string, path: string): RequestKind;
  promptOf(body: unknown): string | null;
  answer(request: UpstreamRequest, twist: Twist): Answer | Promise<Answer>;
}

/** A request under way, in the hands of a behaviour. */
export interface Exchange {
  request: UpstreamRequest;
  response: ServerResponse;
  /** Reads the body to its end, once. */
  read(): Promise<void>;
  /** Does the work, and puts its images on the bill. */
  make(twist?: Twist): Promise<Answer>;
  send(answer: Answer): void;
  /** Resolves after `ms`; never, when the caller has gone. */
  pause(ms: number): Promise<void>;
}

export type Behaviour = (exchange: Exchange) => Promise<void> | void;

export interface FakeUpstream {
  /** `http://127.0.0.1:PORT`, without a path. */
  url: string;
  requests: UpstreamRequest[];
  /** The SHA-256 of each image that was made, by prompt. */
  bill: Map<string, string[]>;
  /** The size of all images from now on; null, as at first: what each request asks for. */
  size: Size | null;
  /** How many images were made in all. */
  billed(): number;
  /** How often images were asked for with this prompt. */
  asked(prompt: string): number;
  /** The most requests for images that were under way at one moment. */
  mostAtOnce(): number;
  /** How the fake behaves from now on; null: well. `kind`: towards which requests, by default those for images. */
  setBehaviour(behaviour: Behaviour | null, kind?: RequestKind): void;
  /** Refuses connections, and breaks those that are open, until `listenAgain`. */
  refuse(): Promise<void>;
  listenAgain(): Promise<void>;
  close(): Promise<void>;
}

const well: Behaviour = async (exchange) => exchange.send(await exchange.make());

/** A service on a free loopback port, with a log of its requests and a bill. */
export async function startUpstream(service: ImageService): Promise<FakeUpstream> {
  const sockets = new Set<Socket>();
  const behaviours = new Map<RequestKind, Behaviour>();
  const requests: UpstreamRequest[] = [];
  const bill = new Map<string, string[]>();
  let [atOnce, mostAtOnce] = [0, 0];

  const server = createServer((incoming, response) => {
    const { method = "", url: path = "", headers } = incoming;
    const request: UpstreamRequest = {
      ...{ kind: service.kindOf(method, path), method, path, headers, body: undefined, prompt: null },
      ...{ bytes: Buffer.alloc(0), time: Date.now(), images: 0, isAbandoned: false },
    };
    requests.push(request);
    const count = request.kind === "images" ? 1 : 0;
    atOnce += count;
    mostAtOnce = Math.max(mostAtOnce, atOnce);
    // The caller may send its next request before this response is closed.
    response.on("finish", () => {
      atOnce -= count;
    });
    response.on("close", () => {
      if (!response.writableFinished) atOnce -= count;
      request.isAbandoned = !response.writableFinished;
    });
    let reading: Promise<void> | null = null;
    const read = () => {
      reading ??= readBody(incoming).then(({ bytes, body }) => {
        Object.assign(request, { bytes, body });
        if (request.kind === "images") request.prompt = service.promptOf(body);
      });
      return reading;
    };
    const exchange: Exchange = {
      request,
      response,
      read,
      make: async (twist = {}) => {
        await read();
        const answer = await service.answer(request, {
          ...(upstream.size && { size: upstream.size }),
          ...twist,
        });
        const hashes = (answer.images ?? []).map((image) => createHash("sha256").update(image).digest("hex"));
        if (request.prompt !== null && hashes.length > 0)
          bill.set(request.prompt, [...(bill.get(request.prompt) ?? []), ...hashes]);
        request.images += hashes.length;
        return answer;
      },
      send: (answer) => {
        if (response.destroyed || response.headersSent) return;
        response.writeHead(answer.status, {
          "content-type": "application/json; charset=UTF-8",
          "content-length": Buffer.byteLength(answer.body),
          ...answer.headers,
        });
        response.end(answer.body);
      },
      pause: (ms) =>
        new Promise((resolve) => {
          if (response.closed) return;
          const timer = setTimeout(() => {
            response.off("close", stop);
            resolve();
          }, ms);
          const stop = () => clearTimeout(timer);
          response.once("close", stop);
        }),
    };
    const behaviour = behaviours.get(request.kind) ?? well;
    // A body that breaks off has no answer.
    Promise.resolve(behaviour(exchange)).catch(() => incoming.socket.destroy());
  });
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  });
  const listen = (port: number) =>
    new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, "127.0.0.1", () => resolve(server.off("error", reject) && undefined));
    });
  const refuse = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      for (const socket of sockets) socket.destroy();
    });
  await listen(0);
  const { port } = server.address() as AddressInfo;
  const upstream: FakeUpstream = {
    url: `http://127.0.0.1:${port}`,
    requests,
    bill,
    size: null,
    billed: () => [...bill.values()].flat().length,
    asked: (prompt) => requests.filter((request) => request.prompt === prompt).length,
    mostAtOnce: () => mostAtOnce,
    setBehaviour: (behaviour, kind = "images") => void behaviours.set(kind, behaviour ?? well),
    refuse,
    listenAgain: () => listen(port),
    close: refuse,
  };
  return upstream;
}

async function readBody(incoming: IncomingMessage): Promise<{ bytes: Buffer; body: unknown }> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const type = incoming.headers["content-type"] ?? "";
  if (type.startsWith("multipart/form-data")) return { bytes, body: await readForm(bytes, type) };
  const text = bytes.toString("utf8");
  try {
    return { bytes, body: JSON.parse(text) };
  } catch {
    return { bytes, body: text };
  }
}

async function readForm(bytes: Buffer, type: string): Promise<Form> {
  const form: Form = { fields: [], files: [] };
  const parts = await new Response(new Uint8Array(bytes), { headers: { "content-type": type } }).formData();
  for (const [name, value] of parts) {
    if (typeof value === "string") form.fields.push([name, value]);
    else {
      const file = { name, filename: value.name, type: value.type };
      form.files.push({ ...file, bytes: Buffer.from(await value.arrayBuffer()) });
    }
  }
  return form;
}
