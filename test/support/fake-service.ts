import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { crc32, deflateSync } from "node:zlib";
import { ZipFile } from "yazl";
import { expandedCustomIds } from "../../src/contract/limits.ts";
import { listen } from "./listen.ts";

export const FAKE_KEY = "test-key-of-the-fake-service";

/** The fake's act on one request instead of an answer. */
export type Fault =
  | { status: number; headers?: Record<string, string>; body?: unknown }
  /** The connection breaks; `after`: when the request has had its effect. */
  | { reset: "before" | "after" }
  /** No answer, ever. */
  | { silent: true }
  /** The body ends after this many bytes. */
  | { cutAt: number }
  /** The request has its effect, but another answer is sent than the true one. */
  | { lie: (answer: Answer) => Answer }
  /** The request has its effect, and the true answer comes when this resolves. */
  | { held: Promise<unknown> }
  /** Anything else. */
  | { handle: RequestListener };

export interface FakeItem {
  custom_id: string;
  status: string;
  prompt: string;
  images: Buffer[];
}

export interface FakeBatch {
  id: string;
  key: string | undefined;
  request: string;
  wire: Record<string, unknown>;
  items: FakeItem[];
  /** The statuses that the next looks see; the last one stays. */
  statuses: string[];
}

export interface ZippedFile {
  name: string;
  data: Buffer;
  mode?: number;
  compress?: boolean;
}

export interface FakeOptions {
  /** The states of each batch, look by look. */
  statuses?: string[];
  /** Items whose prompt matches end as failed. */
  failing?: RegExp;
  /** Says less: no pricing, no cursor, no manifest, no ETag, other words for statuses. */
  foreign?: boolean;
  /** Changes the files of a ZIP before it is packed. */
  tamper?: (files: ZippedFile[]) => ZippedFile[];
  itemPage?: number;
  /** The key that it takes; default `FAKE_KEY`. */
  key?: string;
}

export interface FakeService {
  url: string;
  requests: { method: string; path: string; headers: Record<string, string | undefined>; body: string }[];
  batches: FakeBatch[];
  options: FakeOptions;
  /** The next requests that match `METHOD /path` meet these faults, one each. */
  fault(match: RegExp, ...faults: Fault[]): void;
  /** All requests that match meet this fault, where none of the others is left. */
  always(match: RegExp, fault: Fault): void;
  /** How many requests matched `METHOD /path?query`. */
  count(match: RegExp): number;
  /** Breaks every connection that is open. */
  breakOff(): void;
  close(): Promise<void>;
}

/** A service of this API made of nothing but memory, with faults on demand. Listens on a free loopback port. */
export async function startFakeService(options: FakeOptions = {}): Promise<FakeService> {
  const faults: { match: RegExp; fault: Fault }[] = [];
  const lasting: typeof faults = [];
  const fake: FakeService = {
    url: "",
    requests: [],
    batches: [],
    options,
    fault: (match, ...list) => {
      faults.push(...list.map((fault) => ({ match, fault })));
    },
    always: (match, fault) => {
      lasting.push({ match, fault });
    },
    count: (match) => fake.requests.filter(({ method, path }) => match.test(`${method} ${path}`)).length,
    breakOff: () => listening.breakOff(),
    close: () => listening.close(),
  };
  const server = createServer(async (request, response) => {
    const body = await readBody(request).catch(() => null);
    if (body === null) return;
    const path = request.url ?? "";
    const method = request.method ?? "";
    fake.requests.push({ method, path, headers: request.headers as Record<string, string>, body });
    const at = faults.findIndex(({ match }) => match.test(`${method} ${path}`));
    const once = at < 0 ? undefined : faults.splice(at, 1)[0]?.fault;
    const fault = once ?? lasting.find(({ match }) => match.test(`${method} ${path}`))?.fault;
    if (fault !== undefined && "handle" in fault) return fault.handle(request, response);
    if (fault !== undefined && "silent" in fault) return;
    if (fault !== undefined && "reset" in fault && fault.reset === "before")
      return void request.socket.destroy();
    if (fault !== undefined && "status" in fault)
      return send(response, fault.status, fault.body ?? "", fault.headers);
    const truth = await answerTo(fake, request, body);
    if (fault !== undefined && "held" in fault) await fault.held;
    const answer = fault !== undefined && "lie" in fault ? fault.lie(truth) : truth;
    if (fault !== undefined && "reset" in fault) return void request.socket.destroy();
    const cutAt = fault !== undefined && "cutAt" in fault ? fault.cutAt : null;
    sendBytes(request, response, answer, cutAt);
  });
  const listening = await listen(server);
  fake.url = listening.url;
  return fake;
}

export interface Answer {
  status: number;
  body: Buffer;
  headers: Record<string, string>;
}

function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  const body = Buffer.from(JSON.stringify(value));
  return {
    status,
    body,
    headers: { "content-type": "application/json", "x-request-id": "req_fake", ...headers },
  };
}

function refuse(status: number, code: string, message: string): Answer {
  return json(status, { error: { type: "x", code, message } });
}

async function answerTo(fake: FakeService, request: IncomingMessage, body: string): Promise<Answer> {
  if (request.headers.authorization !== `Bearer ${fake.options.key ?? FAKE_KEY}`)
    return refuse(401, "INVALID_API_KEY", "Unknown key.");
  const url = new URL(request.url ?? "", "http://fake");
  const [id, part, customId, leaf] = url.pathname
    .replace(/^\/v1\/images\/batches\/?/, "")
    .split("/")
    .map(decodeURIComponent);
  if (request.method === "POST" && part !== "cancel") return create(fake, request, body);
  if (id === "models") return models(fake);
  if (id === "") return list(fake, url);
  const batch = fake.batches.find((each) => each.id === id);
  if (batch === undefined) return refuse(404, "BATCH_IMAGE_NOT_FOUND", "No such batch.");
  if (request.method !== "GET") return change(fake, batch, `${request.method} ${part ?? ""}`);
  if (part === undefined) return look(fake, batch);
  if (part === "items" && leaf === "content") return content(fake, batch, customId ?? "", url);
  if (part === "items") return items(fake, batch, url);
  if (batch.wire.status === "output_deleted") return refuse(410, "BATCH_IMAGE_OUTPUT_DELETED", "Gone.");
  return download(fake, batch);
}

/** Batches newest first, by page; of the filters it knows the status. */
function list({ batches, options }: FakeService, url: URL): Answer {
  const status = url.searchParams.get("status");
  const found = batches.filter(({ wire }) => status === null || wire.status === status).reverse();
  const start = Number(url.searchParams.get("cursor") ?? 0);
  const end = start + Number(url.searchParams.get("limit") ?? 20);
  const hasMore = end < found.length;
  const cursor = options.foreign ? {} : { next_cursor: hasMore ? String(end) : null };
  return json(200, {
    object: "list",
    data: found.slice(start, end).map(({ wire }) => wire),
    has_more: hasMore,
    ...cursor,
  });
}

/** Cancel and delete; what a foreign service answers is nothing. */
function change(fake: FakeService, batch: FakeBatch, what: string): Answer {
  const isDone = ["completed", "failed", "cancelled", "output_deleted"].includes(String(batch.wire.status));
  if (what === "POST cancel" && !isDone) {
    batch.statuses = ["cancelled"];
    for (const item of batch.items.slice(1)) Object.assign(item, { status: "failed", images: [] });
    look(fake, batch);
    Object.assign(batch.wire, fake.options.foreign ? {} : { hold_amount: batch.items.length * 0.0402 });
  }
  if (what.startsWith("DELETE") && !isDone)
    return refuse(409, "BATCH_IMAGE_OUTPUT_DELETE_NOT_READY", "Not yet.");
  if (what === "DELETE outputs") {
    batch.statuses = ["output_deleted"];
    look(fake, batch);
  }
  if (what === "DELETE ") {
    fake.batches.splice(fake.batches.indexOf(batch), 1);
    return { status: 204, body: Buffer.alloc(0), headers: {} };
  }
  return fake.options.foreign ? { status: 200, body: Buffer.alloc(0), headers: {} } : json(200, batch.wire);
}

function models({ options }: FakeService): Answer {
  const pricing = options.foreign
    ? {}
    : { pricing: { currency: "usd", batch_image: 0.0335, batch_hold: 0.0402 } };
  const ids = ["vendorx-3.1-flash-image", "vendorx-3-pro-image"];
  return json(200, {
    object: "list",
    data: ids.map((id) => ({ id, object: "image.batch.model", ...pricing })),
  });
}

function create(fake: FakeService, request: IncomingMessage, body: string): Answer {
  const key = request.headers["idempotency-key"] as string | undefined;
  const known = fake.batches.find((batch) => batch.key === key);
  if (known !== undefined && known.request !== body)
    return refuse(409, "BATCH_IMAGE_IDEMPOTENCY_CONFLICT", "Used.");
  if (known !== undefined) return json(200, known.wire, { "idempotency-replayed": "true" });
  const { foreign, failing, statuses } = fake.options;
  const input = JSON.parse(body);
  const made: FakeItem[] = input.items.flatMap(
    (item: { custom_id: string; prompt: string; output_count?: number }) =>
      expandedCustomIds(item.custom_id, item.output_count ?? 1).map((custom_id) => {
        const fails = failing?.test(item.prompt) ?? false;
        return {
          custom_id,
          prompt: item.prompt,
          status: fails ? "failed" : "success",
          images: fails ? [] : [png(custom_id)],
        };
      }),
  );
  const id = `imgbatch_${createHash("md5").update(`${fake.batches.length}${body}`).digest("hex")}`;
  const first = foreign ? "submitting" : "queued";
  const batch: FakeBatch = {
    id,
    key,
    request: body,
    items: made,
    statuses: [...(statuses ?? ["running", "completed"])],
    wire: {
      id,
      object: "image.batch",
      status: first,
      model: input.model,
      ...(foreign
        ? {}
        : {
            task_name: input.task_name ?? "unnamed",
            parent_batch_id: input.parent_batch_id ?? null,
            item_count: made.length,
            success_count: 0,
            fail_count: 0,
            estimated_cost: made.length * 0.0335,
            actual_cost: null,
            created_at: Math.floor(Date.now() / 1000) - 7260,
            error: null,
          }),
    },
  };
  fake.batches.push(batch);
  // Later answers say that it was made two hours ago; at first that would be a replay.
  const now = foreign ? {} : { created_at: Math.floor(Date.now() / 1000) };
  return json(200, { ...batch.wire, ...now });
}

function look({ options }: FakeService, batch: FakeBatch): Answer {
  const status = batch.statuses.length > 1 ? batch.statuses.shift() : batch.statuses[0];
  const isDone = ["completed", "failed", "cancelled", "output_deleted"].includes(status ?? "");
  const count = (wanted: string) => batch.items.filter((item) => item.status === wanted).length;
  Object.assign(batch.wire, { status });
  if (isDone && !options.foreign) {
    const success_count = count("success");
    Object.assign(batch.wire, {
      success_count,
      fail_count: count("failed"),
      actual_cost: success_count * 0.0335,
    });
  }
  return json(200, batch.wire);
}

function items({ options }: FakeService, batch: FakeBatch, url: URL): Answer {
  const start = Number(url.searchParams.get("cursor") ?? 0);
  const page = Math.min(options.itemPage ?? 500, Number(url.searchParams.get("limit") ?? 100));
  const data = batch.items.slice(start, start + page).map((item) => {
    const isGood = item.status === "success";
    return {
      custom_id: item.custom_id,
      status: isGood && options.foreign ? "succeeded" : item.status,
      prompt_preview: item.prompt.slice(0, 20),
      mime_type: isGood ? "image/png" : null,
      file_extension: isGood ? "png" : null,
      image_count: item.images.length,
      error: isGood
        ? null
        : { code: "PROVIDER_ITEM_FAILED", message: "It did not work.", source: "provider" },
    };
  });
  const hasMore = start + page < batch.items.length;
  const cursor = options.foreign ? {} : { next_cursor: hasMore ? String(start + page) : null };
  return json(200, { object: "list", data, has_more: hasMore, ...cursor });
}

function content({ options }: FakeService, batch: FakeBatch, customId: string, url: URL): Answer {
  const item = batch.items.find((each) => each.custom_id === customId);
  if (item === undefined) return refuse(404, "BATCH_IMAGE_ITEM_NOT_FOUND", "No such item.");
  const image = item.images[Number(url.searchParams.get("image_index") ?? 0)];
  if (image === undefined) return refuse(409, "BATCH_IMAGE_ITEM_FAILED", "No image.");
  const etag = options.foreign ? {} : { etag: `"${sha256(image)}"` };
  return { status: 200, body: image, headers: { "content-type": "image/png", ...etag } };
}

async function download({ options }: FakeService, batch: FakeBatch): Promise<Answer> {
  const files: ZippedFile[] = [];
  const listed: object[] = [];
  for (const item of batch.items) {
    for (const [image_index, data] of item.images.entries()) {
      const stem = item.custom_id.replace(/[^\w.-]/g, "_") + (image_index === 0 ? "" : `_${image_index + 1}`);
      const filename = `images/${stem}.png`;
      files.push({ name: options.foreign ? `${stem}.png` : filename, data });
      const facts = { size: data.length, sha256: sha256(data) };
      listed.push({ custom_id: item.custom_id, filename, mime_type: "image/png", image_index, ...facts });
    }
  }
  if (!options.foreign) {
    files.push({
      name: "manifest.json",
      data: Buffer.from(JSON.stringify({ batch_id: batch.id, files: listed })),
    });
    files.push({ name: "errors.json", data: Buffer.from("[]") });
  }
  const body = await packZip(options.tamper?.(files) ?? files);
  const etag = options.foreign ? {} : { etag: `"zip-${sha256(body)}"` };
  return { status: 200, body, headers: { "content-type": "application/zip", ...etag } };
}

/** A ZIP of these files; names that yazl refuses are written over a harmless one of the same length. */
export async function packZip(files: readonly ZippedFile[]): Promise<Buffer> {
  const zip = new ZipFile();
  const swaps: [string, string][] = [];
  for (const { name, data, mode, compress = false } of files) {
    const isRefused = /^\/|\\|(^|\/)\.\.(\/|$)|^[a-z]:/i.test(name);
    const harmless = isRefused ? `${"x".repeat(name.length - 1)}${swaps.length}` : name;
    if (isRefused) swaps.push([harmless, name]);
    const options = { mtime: new Date(2020, 0, 1), compress, ...(mode === undefined ? {} : { mode }) };
    zip.addBuffer(data, harmless, options);
  }
  zip.end();
  const chunks: Buffer[] = [];
  for await (const chunk of zip.outputStream) chunks.push(chunk as Buffer);
  let bytes = Buffer.concat(chunks);
  for (const [from, to] of swaps)
    bytes = Buffer.from(bytes.toString("latin1").replaceAll(from, to), "latin1");
  return bytes;
}

/** A real PNG, different for every seed. */
export function png(seed: string, width = 4, height = 3): Buffer {
  const pixels = Buffer.alloc(height * (1 + width * 3));
  createHash("sha512").update(seed).digest().copy(pixels, 1);
  for (let row = 0; row < height; row++) pixels[row * (1 + width * 3)] = 0;
  return pngOf(width, height, pixels);
}

/** A PNG whose header announces this size, with these bytes as its rows. */
export function pngOf(width: number, height: number, rows: Buffer): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([
    signature,
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows)),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
}

function sha256(data: Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  response.writeHead(status, { "x-request-id": "req_fake", ...headers }).end(text);
}

function sendBytes(
  request: IncomingMessage,
  response: ServerResponse,
  answer: Answer,
  cutAt: number | null,
): void {
  const { etag } = answer.headers;
  const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? "");
  const isRange =
    answer.status === 200 && range !== null && etag !== undefined && request.headers["if-range"] === etag;
  const start = isRange ? Number(range?.[1]) : 0;
  const total = answer.body.length;
  const part = answer.body.subarray(start);
  const headers = { ...answer.headers, "content-length": String(part.length) };
  if (isRange && start >= total)
    return void response.writeHead(416, { "content-range": `bytes */${total}` }).end();
  if (isRange)
    response.writeHead(206, { ...headers, "content-range": `bytes ${start}-${total - 1}/${total}` });
  else response.writeHead(answer.status, headers);
  if (cutAt === null) return void response.end(part);
  response.write(part.subarray(0, cutAt), () => request.socket.destroy());
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const part of request) chunks.push(part);
  return Buffer.concat(chunks).toString("utf8");
}
