import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CHARACTER } from "../support/characters.ts";
import { expectProperAnswer } from "../support/error-body.ts";
import { FakeProvider, made, tinyPng } from "../support/fake-provider.ts";
import { fuzzRuns } from "../support/fuzz-runs.ts";
import { exchange, requestText } from "../support/raw-http.ts";
import { MODEL, startTestService, type TestService } from "../support/service.ts";
import { readZip } from "../support/zip.ts";

const BATCHES = "/v1/images/batches";
const NAMES = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "", "model", "items"];
const TEXTS = [
  ...[
    "",
    " ",
    "\0",
    "\u0007\u001b[2J",
    "\ud800",
    "\udfff\ud800",
    "\u202egnp.exe",
    "\ufeff",
    "\u2028",
    "狐",
    "e\u0301",
  ],
  ...[
    "a/b",
    "..",
    ".",
    "../../etc/passwd",
    "C:\\x",
    "CON",
    "nul.png",
    "~",
    "%2e%2e%2f",
    "%00",
    "a\r\nSet-Cookie: x",
  ],
  ...[
    '"',
    '";filename=x',
    "'",
    "$where",
    "{{7*7}}",
    "<svg onload=x>",
    "a".repeat(129),
    "é".repeat(128),
    "x".repeat(9000),
  ],
];
/** Numbers and names that JSON text can hold and `JSON.stringify` never writes. */
const RAW = [
  "1e400",
  "-1e400",
  "-0",
  "9007199254740993",
  "1E-400",
  "0.1e1",
  '{"a":1,"a":2}',
  '{"__proto__":{"x":1}}',
];
const raw = (text: string) => `@@${Buffer.from(text).toString("hex")}@@`;

const text = fc.oneof(fc.constantFrom(...TEXTS), fc.string({ unit: CHARACTER, maxLength: 40 }));
const anything = fc.oneof(
  { weight: 3, arbitrary: text },
  {
    weight: 2,
    arbitrary: fc.constantFrom(null, true, 0, -1, 1.5, 3, 2 ** 53, -(2 ** 31), 1e308, [], {}, [[]], [null]),
  },
  { weight: 1, arbitrary: fc.constantFrom(...RAW).map(raw) },
  { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  { weight: 1, arbitrary: fc.dictionary(fc.constantFrom(...NAMES), text, { maxKeys: 3 }) },
);
const PLACES = [
  ...[
    "model",
    "task_name",
    "parent_batch_id",
    "items",
    "response_mime_type",
    "aspect_ratio",
    "image_size",
    "metadata",
  ],
  ...[
    "items.0",
    "items.1",
    "items.0.custom_id",
    "items.0.prompt",
    "items.0.output_count",
    "items.0.reference_images",
  ],
  ...[
    "items.0.reference_images.0",
    "items.0.reference_images.0.data",
    "items.0.reference_images.0.mime_type",
  ],
  ...[
    "items.0.reference_images.0.id",
    "items.0.reference_images.0.type",
    "items.0.reference_images.0.storage_uri",
  ],
  ...["items.1.custom_id", "items.1.prompt", "metadata.k", ...NAMES.map((name) => `metadata.${name}`)],
  ...NAMES.flatMap((name) => [name, `items.0.${name}`]),
];

type Json = Record<string, unknown>;

/** Puts a value at a place, as a property of its own whatever its name. */
function put(body: Json, place: string, value: unknown): void {
  const names = place.split(".");
  const last = names.pop() ?? "";
  let holder = body;
  for (const name of names) {
    const inner = Object.hasOwn(holder, name) ? holder[name] : undefined;
    if (typeof inner !== "object" || inner === null) return;
    holder = inner as Json;
  }
  Object.defineProperty(holder, last, { value, enumerable: true, configurable: true, writable: true });
}

const bodyText = fc
  .array(fc.tuple(fc.constantFrom(...PLACES), anything), { minLength: 0, maxLength: 3 })
  .map((changes) => (png: string) => {
    const reference = { mime_type: "image/png", data: png, id: "r", type: "style" };
    const items = [
      { custom_id: "a", prompt: "a fox", output_count: 1, reference_images: [reference] },
      { prompt: "b" },
    ];
    const body: Json = { model: MODEL, task_name: "t", metadata: { k: "v" }, items };
    for (const [place, value] of changes) put(body, place, value);
    return JSON.stringify(body).replace(/"@@([0-9a-f]*)@@"/g, (_, hex) => String(Buffer.from(hex, "hex")));
  });

async function fuzzService(): Promise<TestService> {
  const provider = new FakeProvider({ concurrency: 8 });
  const png = await tinyPng();
  provider.answer = async () => made(png);
  return startTestService({
    providers: [provider],
    config: { models: [{ id: MODEL, prices: { "1K": 0.001 } }] },
  });
}

const post = (service: TestService, body: string | Uint8Array, headers: Record<string, string> = {}) =>
  service.ask("", {
    method: "POST",
    body,
    headers: { "content-type": "application/json", ...headers },
  } as RequestInit);

describe("whatever is sent", () => {
  it("[HOSTILE-1] any create body is refused by its code, or makes a batch whose names come back", async () => {
    const service = await fuzzService();
    const png = (await tinyPng()).toString("base64");
    let accepted = 0;
    await fc.assert(
      fc.asyncProperty(bodyText, async (build) => {
        const sent = build(png);
        const answer = await post(service, sent);
        const body = await answer.text();
        const requestId = answer.headers.get("x-request-id");
        if (expectProperAnswer({ status: answer.status, requestId, body }) !== null) return;
        accepted++;
        await expectToBeStored(service, JSON.parse(body).id, JSON.parse(sent));
      }),
      { numRuns: fuzzRuns(400) },
    );
    expect(accepted).toBeGreaterThan(10);
    expect({}).not.toHaveProperty("x");
  });

  it("[HOSTILE-1] any bytes and any JSON text as a body are refused by a code", async () => {
    const service = await startTestService({ workers: false });
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array)),
      fc.json({ maxDepth: 5 }).map((json) => Buffer.from(json)),
      fc
        .constantFrom("{", "[", '{"a":', "nul", "\ufeff{}", "{}{}", "'a'", "\x1f\x8b", "NaN", '"\\ud800"')
        .map((t) => Buffer.from(t)),
    );
    await fc.assert(
      fc.asyncProperty(bytes, async (body) => {
        const answer = await post(service, new Uint8Array(body));
        const requestId = answer.headers.get("x-request-id");
        expect(
          expectProperAnswer({ status: answer.status, requestId, body: await answer.text() }),
        ).not.toBeNull();
      }),
      { numRuns: fuzzRuns(150) },
    );
  });

  it("[HOSTILE-1] any query, path and header gets a proper answer", async () => {
    const service = await fuzzService();
    const { id } = await service.submit({ model: MODEL, items: [{ custom_id: "a", prompt: "a" }] });
    await service.until(id);
    const names = [
      "status",
      "task_name",
      "downloaded",
      "from",
      "to",
      "limit",
      "cursor",
      "image_index",
      "max_items",
    ];
    const part = fc.oneof(
      text.map((t) => encodeURIComponent(t.toWellFormed())),
      fc.constantFrom(
        "%",
        "%zz",
        "%c3%28",
        "%00",
        "%2F",
        "%2e%2e",
        "..",
        "a%2Fb",
        "x".repeat(4000),
        id,
        "models",
        "+",
        "a;b",
      ),
      fc.string({ maxLength: 10 }).map((t) => t.replace(/[\s#]/g, "_")),
    );
    const query = fc
      .array(fc.tuple(fc.constantFrom(...names, "__proto__", "a[b]", "status[]"), part), { maxLength: 3 })
      .map((pairs) => pairs.map(([name, value]) => `${name}=${value}`).join("&"));
    const path = fc.oneof(
      fc.constantFrom(
        BATCHES,
        `${BATCHES}/${id}/items`,
        `${BATCHES}/${id}/items/a/content`,
        `${BATCHES}/${id}/download`,
      ),
      part.map((p) => `${BATCHES}/${p}`),
      part.map((p) => `${BATCHES}/${id}/items/${p}/content`),
      fc.array(part, { maxLength: 4 }).map((parts) => `/${parts.join("/")}`),
    );
    const value = fc.oneof(
      text.map((t) => t.replace(/[\0\r\n]/g, "")),
      fc.constantFrom(
        "bytes=0-0",
        "bytes=-1",
        "bytes=9999999999999999999-",
        "bytes=0-1,3-4",
        "bytes=1-0",
        "*",
        'W/"x"',
        "x".repeat(3000),
      ),
    );
    const headers = fc.dictionary(
      fc.constantFrom(
        "Idempotency-Key",
        "x-request-id",
        "Range",
        "If-Range",
        "If-None-Match",
        "Content-Type",
        "Accept",
        "X-A",
      ),
      value,
      { maxKeys: 4 },
    );
    const method = fc.constantFrom("GET", "GET", "HEAD", "POST", "DELETE", "PATCH");
    const key = fc.oneof(
      { weight: 4, arbitrary: fc.constant(`Bearer ${service.credentials.api_key}`) },
      { weight: 1, arbitrary: value },
    );
    await fc.assert(
      fc.asyncProperty(
        method,
        path,
        query,
        headers,
        key,
        async (verb, target, asked, given, authorization) => {
          if (verb === "DELETE" && target.startsWith(`${BATCHES}/${id}`)) return;
          const all = [...Object.entries(given), ["Authorization", authorization]] as [string, string][];
          const answer = await exchange(service.url, requestText(verb, `${target}?${asked}`, all));
          const [status, requestId] = [answer?.status ?? 0, answer?.headers.get("x-request-id")];
          if (verb === "HEAD") {
            expect(status).toBeLessThan(500);
            expect(requestId).toBeDefined();
          } else expectProperAnswer({ status, requestId, body: String(answer?.body) });
        },
      ),
      { numRuns: fuzzRuns(400) },
    );
  });
});

interface Sent {
  task_name?: unknown;
  metadata?: object;
  items: { custom_id?: string; output_count?: number }[];
}

/** Each sent id is listed; and where a name is unusual, it is downloadable under a name that leads nowhere else. */
async function expectToBeStored(service: TestService, id: string, sent: Sent): Promise<void> {
  const batch = await service.batch(id);
  if (sent.metadata) expect(batch.metadata).toEqual(sent.metadata);
  const ids = (await service.items(id)).map((item) => item.custom_id);
  const [first] = sent.items;
  const isSingle = (first?.output_count ?? 1) === 1;
  if (first?.custom_id != null && isSingle) expect(ids[0]).toBe(first.custom_id);
  if (first?.custom_id === "a" && sent.task_name === "t") return;
  await service.until(id);
  for (const customId of ids) {
    const content = await service.ask(`/${id}/items/${encodeURIComponent(customId)}/content`);
    expect([customId, content.status]).toEqual([customId, 200]);
    expect(content.headers.get("content-disposition")).toMatch(SAFE_DISPOSITION);
    await content.arrayBuffer();
  }
  const zip = await service.ask(`/${id}/download`);
  expect(zip.headers.get("content-disposition")).toMatch(SAFE_DISPOSITION);
  const entries = await readZip(Buffer.from(await zip.arrayBuffer()));
  expect(entries.size).toBe(ids.length + 2);
  for (const name of entries.keys()) expect(name).toMatch(SAFE_ENTRY);
}

const SAFE_DISPOSITION = /^attachment; filename="[ !#-[\]-~]+"; filename\*=UTF-8''[\w%.!~*'()-]+$/;
const SAFE_ENTRY = /^(images\/(?!\.)[^/\\:*?"<>|\p{Cc}]+|manifest\.json|errors\.json)$/u;
