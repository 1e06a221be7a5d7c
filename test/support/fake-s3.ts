import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { listen, resetConnection } from "./listen.ts";
import { errorAnswer, operate, type S3Answer } from "./s3/operations.ts";
import { decodedPath, type S3Credentials, S3Error, verifySignature } from "./s3/sig-v4.ts";

/** A misfortune of one request. */
export interface S3Fault {
  /** Nothing is done. 503 `SlowDown`, 500 `InternalError`, 403 `ExpiredToken`. */
  refuse?: { status: number; code: string };
  /** The connection is reset before anything was done, or after it: then the answer is lost. */
  reset?: "before" | "after";
  /** The connection is reset after this many bytes of the answer's body. */
  cutAt?: number;
  /** The answer's body comes in pieces of 16 KiB, one in this many milliseconds. */
  slowMs?: number;
  /** The answer's body has a wrong byte in its middle, and its length is right. */
  wrongBytes?: true;
  /** Something else answers with this, status 200. */
  says?: string;
  /** No answer ever. */
  hang?: true;
}

export interface S3Request {
  method: string;
  /** Empty for a request to the bucket. */
  key: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  /** The status of the answer, or 0 while there is none. */
  status: number;
}

export interface S3Object {
  bytes: Buffer;
  etag: string;
  modifiedMs: number;
  contentType: string;
  /** Base64, when the request that put it had one. */
  sha256: string | undefined;
}

export interface FakeS3 {
  /** The endpoint, without the bucket. `http://BUCKET.localhost:PORT` is the same bucket by virtual host. */
  url: string;
  bucket: string;
  region: string;
  credentials: S3Credentials;
  objects: Map<string, S3Object>;
  /** All requests, refused ones too, in the order of their arrival. */
  requests: S3Request[];
  /** The most keys of one page of a list; at most 1000. */
  pageSize: number;
  /** The server's clock in milliseconds. */
  now: () => number;
  /** The next `times` requests (default 1) that match have this fault. */
  fail(fault: S3Fault, options?: { times?: number; when?: (request: S3Request) => boolean }): void;
  /** Forgets all faults. */
  heal(): void;
  close(): Promise<void>;
}

const PIECE_BYTES = 16 * 1024;

/**
 * An S3 server in memory on a free loopback port: put, get, head, delete, delete many, list and head of the bucket. It
 * takes only what Amazon's takes: every signature, time, hash and checksum is verified.
 */
export async function startFakeS3(
  settings: Partial<Pick<FakeS3, "bucket" | "region" | "credentials">> = {},
): Promise<FakeS3> {
  const planned: { fault: S3Fault; left: number; when: (request: S3Request) => boolean }[] = [];
  const timers = new Set<NodeJS.Timeout>();
  const server = createServer(async (message, response) => {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of message) chunks.push(chunk);
    } catch {
      return;
    }
    const path = decodedPath(message.url ?? "").slice(1);
    const isVirtual = message.headers.host?.startsWith(`${fake.bucket}.`) === true;
    const [bucket, ...rest] = isVirtual ? [fake.bucket, path] : path.split("/");
    const request = {
      method: message.method ?? "",
      key: rest.join("/"),
      query: new URL(`http://s3${message.url}`).searchParams,
      headers: message.headers,
      status: 0,
    };
    fake.requests.push(request);
    const plan = planned.find(({ left, when }) => left > 0 && when(request));
    if (plan !== undefined) plan.left--;
    const fault = plan?.fault ?? {};
    if (fault.hang) return;
    if (fault.reset === "before") return resetConnection(message.socket);
    let answer: S3Answer;
    try {
      if (fault.refuse) throw new S3Error(fault.refuse.status, fault.refuse.code);
      const body = Buffer.concat(chunks);
      const signed = { method: request.method, url: message.url ?? "", headers: message.headers, body };
      verifySignature(signed, { credentials: fake.credentials, region: fake.region, nowMs: fake.now() });
      if (bucket !== fake.bucket) throw new S3Error(404, "NoSuchBucket");
      answer = fault.says === undefined ? operate(fake, request, body) : { status: 200, body: fault.says };
    } catch (error) {
      if (!(error instanceof S3Error)) throw error;
      answer = errorAnswer(error);
    }
    if (fault.reset) return resetConnection(message.socket);
    request.status = answer.status;
    send(response, request.method === "HEAD" ? { ...answer, body: "" } : answer, fault, timers);
  });
  const { url, close } = await listen(server);
  const fake: FakeS3 = {
    url,
    bucket: "images",
    region: "us-east-1",
    credentials: {
      accessKeyId: "AKIAFAKEFAKEFAKEFAKE",
      secretAccessKey: "not-a-secret-of-anybody-0123456789abcdef",
    },
    ...settings,
    objects: new Map(),
    requests: [],
    pageSize: 1000,
    now: Date.now,
    fail: (fault, { times = 1, when = () => true } = {}) => {
      planned.push({ fault, left: times, when });
    },
    heal: () => {
      planned.length = 0;
    },
    close: () => {
      for (const timer of timers) clearInterval(timer);
      return close();
    },
  };
  return fake;
}

function send(response: ServerResponse, answer: S3Answer, fault: S3Fault, timers: Set<NodeJS.Timeout>): void {
  let body = Buffer.from(answer.body ?? "");
  if (fault.wrongBytes && body.length > 0) {
    body = Buffer.from(body);
    const middle = body.length >> 1;
    body.writeUInt8((body[middle] ?? 0) ^ 1, middle);
  }
  const lengths =
    answer.status === 204 || response.req.method === "HEAD" ? {} : { "content-length": String(body.length) };
  response.writeHead(answer.status, {
    server: "AmazonS3",
    "x-amz-request-id": "FAKE",
    ...lengths,
    ...answer.headers,
  });
  if (fault.cutAt !== undefined)
    response.write(body.subarray(0, fault.cutAt), () => resetConnection(response.req.socket));
  else if (fault.slowMs !== undefined) {
    const pieces = Array.from({ length: Math.ceil(body.length / PIECE_BYTES) }, (_, i) =>
      body.subarray(i * PIECE_BYTES, (i + 1) * PIECE_BYTES),
    );
    const timer = setInterval(() => {
      const piece = pieces.shift();
      if (piece !== undefined && !response.destroyed) return void response.write(piece);
      clearInterval(timer);
      timers.delete(timer);
      response.end();
    }, fault.slowMs);
    timers.add(timer);
  } else response.end(body);
}
