import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { FakeS3, S3Object, S3Request } from "../fake-s3.ts";
import { readXml } from "../xml.ts";
import { S3Error } from "./sig-v4.ts";

export interface S3Answer {
  status: number;
  headers?: Record<string, string>;
  body?: Buffer | string;
}

const MAX_KEY_BYTES = 1024;
const NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/";

/** Does what a request asks for that was signed well, and throws `S3Error`. */
export function operate(fake: FakeS3, request: S3Request, body: Buffer): S3Answer {
  const { method, key, query } = request;
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) throw new S3Error(400, "KeyTooLongError");
  if (key !== "") {
    // Amazon's SDK names its operation in `x-id`, which no server reads.
    if ([...query.keys()].some((name) => name !== "x-id")) throw new S3Error(501, "NotImplemented");
    if (method === "PUT") return put(fake, request, body);
    if (method === "DELETE") {
      fake.objects.delete(key);
      return { status: 204 };
    }
    if (method === "GET" || method === "HEAD") return get(fake, request);
  } else if (method === "HEAD") return { status: 200, headers: { "x-amz-bucket-region": fake.region } };
  else if (method === "GET" && query.get("list-type") === "2") return list(fake, query);
  else if (method === "POST" && query.has("delete")) return deleteMany(fake, request, body);
  throw new S3Error(
    501,
    "NotImplemented",
    "A header or query you provided implies functionality that is not implemented",
  );
}

function put(fake: FakeS3, { key, headers }: S3Request, body: Buffer): S3Answer {
  if (headers["content-length"] === undefined) throw new S3Error(411, "MissingContentLength");
  if (headers["x-amz-copy-source"] !== undefined) throw new S3Error(501, "NotImplemented");
  checkSums(headers, body);
  const old = fake.objects.get(key);
  if (headers["if-none-match"] === "*" && old !== undefined) throw new S3Error(412, "PreconditionFailed");
  const etag = `"${digest("md5", body, "hex")}"`;
  const contentType = headers["content-type"] ?? "binary/octet-stream";
  const sha256 = headers["x-amz-checksum-sha256"] as string | undefined;
  fake.objects.set(key, { bytes: body, etag, modifiedMs: fake.now(), contentType, sha256 });
  return {
    status: 200,
    headers: { etag, ...(sha256 === undefined ? {} : { "x-amz-checksum-sha256": sha256 }) },
  };
}

/** A wrong checksum of the body is refused; so is one that is no checksum at all. */
function checkSums(headers: IncomingMessage["headers"], body: Buffer): void {
  for (const [name, algorithm, length] of [
    ["x-amz-checksum-sha256", "sha256", 44],
    ["content-md5", "md5", 24],
  ] as const) {
    const given = headers[name];
    if (given === undefined) continue;
    if (given.length !== length)
      throw new S3Error(400, algorithm === "md5" ? "InvalidDigest" : "InvalidRequest");
    if (given !== digest(algorithm, body, "base64")) throw new S3Error(400, "BadDigest");
  }
}

function get(fake: FakeS3, { key, headers }: S3Request): S3Answer {
  const object = fake.objects.get(key);
  if (object === undefined) throw new S3Error(404, "NoSuchKey", "The specified key does not exist.");
  const { bytes, etag, sha256 } = object;
  if (![undefined, etag].includes(headers["if-match"])) throw new S3Error(412, "PreconditionFailed");
  const facts = {
    etag,
    "content-type": object.contentType,
    "accept-ranges": "bytes",
    "last-modified": new Date(object.modifiedMs).toUTCString(),
  };
  const [, first = "", last = ""] = /^bytes=(\d*)-(\d*)$/.exec(headers.range ?? "") ?? [];
  if (first === "" && last === "") {
    const sums =
      headers["x-amz-checksum-mode"] === "ENABLED" && sha256 !== undefined
        ? { "x-amz-checksum-sha256": sha256 }
        : {};
    return {
      status: 200,
      headers: { ...facts, ...sums, "content-length": String(bytes.length) },
      body: bytes,
    };
  }
  const start = first === "" ? Math.max(0, bytes.length - Number(last)) : Number(first);
  const end = first === "" || last === "" ? bytes.length - 1 : Math.min(Number(last), bytes.length - 1);
  if (start > end) throw new S3Error(416, "InvalidRange", "The requested range is not satisfiable");
  const range = `bytes ${start}-${end}/${bytes.length}`;
  return {
    status: 206,
    headers: { ...facts, "content-range": range, "content-length": String(end - start + 1) },
    body: bytes.subarray(start, end + 1),
  };
}

/** Keys are in the order of their UTF-8 bytes. */
function list(fake: FakeS3, query: URLSearchParams): S3Answer {
  const prefix = query.get("prefix") ?? "";
  const delimiter = query.get("delimiter") ?? "";
  const most = Math.min(Number(query.get("max-keys") ?? 1000), fake.pageSize, 1000);
  const token = query.get("continuation-token");
  const after =
    token === null ? (query.get("start-after") ?? "") : Buffer.from(token, "base64url").toString();
  const isEncoded = query.get("encoding-type") === "url";
  const show = (key: string) =>
    isEncoded ? encodeURIComponent(key).replaceAll("%2F", "/").replaceAll("%20", "+") : escaped(key);
  const keys = [...fake.objects.keys()]
    .filter((key) => key.startsWith(prefix) && compare(key, after) > 0)
    .sort(compare);
  const rows = new Map<string, string>();
  let last = "";
  for (const key of keys) {
    const cut = delimiter === "" ? -1 : key.indexOf(delimiter, prefix.length);
    const common = key.slice(0, cut + delimiter.length);
    if (cut >= 0 && after.startsWith(common)) continue;
    if (rows.size >= most && !(cut >= 0 && rows.has(common))) break;
    const { bytes, etag, modifiedMs } = fake.objects.get(key) as S3Object;
    if (cut >= 0) rows.set(common, `<CommonPrefixes><Prefix>${show(common)}</Prefix></CommonPrefixes>`);
    else
      rows.set(
        key,
        `<Contents><Key>${show(key)}</Key><LastModified>${new Date(modifiedMs).toISOString()}</LastModified><ETag>${escaped(etag)}</ETag><Size>${bytes.length}</Size><StorageClass>STANDARD</StorageClass></Contents>`,
      );
    last = key;
  }
  const isTruncated = last !== "" && last !== keys.at(-1);
  const next = isTruncated
    ? `<NextContinuationToken>${Buffer.from(last).toString("base64url")}</NextContinuationToken>`
    : "";
  const head = `<Name>${fake.bucket}</Name><Prefix>${show(prefix)}</Prefix><KeyCount>${rows.size}</KeyCount><MaxKeys>${most}</MaxKeys><IsTruncated>${isTruncated}</IsTruncated>${isEncoded ? "<EncodingType>url</EncodingType>" : ""}`;
  return xmlAnswer(
    `<ListBucketResult xmlns="${NAMESPACE}">${head}${next}${[...rows.values()].join("")}</ListBucketResult>`,
  );
}

function deleteMany(fake: FakeS3, { headers }: S3Request, body: Buffer): S3Answer {
  if (headers["content-md5"] === undefined && headers["x-amz-checksum-sha256"] === undefined)
    throw new S3Error(400, "InvalidRequest", "Missing required header for this request: Content-MD5");
  checkSums(headers, body);
  const keys: string[] = [];
  let isQuiet = false;
  try {
    for (const { name, text, children } of readXml(body.toString("utf8")).children) {
      if (name === "Quiet") isQuiet = text === "true";
      else keys.push(children.find((child) => child.name === "Key")?.text ?? "");
    }
  } catch {
    throw new S3Error(400, "MalformedXML");
  }
  if (keys.length === 0 || keys.length > 1000 || keys.includes("")) throw new S3Error(400, "MalformedXML");
  for (const key of keys) fake.objects.delete(key);
  const deleted = isQuiet ? "" : keys.map((key) => `<Deleted><Key>${escaped(key)}</Key></Deleted>`).join("");
  return xmlAnswer(`<DeleteResult xmlns="${NAMESPACE}">${deleted}</DeleteResult>`);
}

function xmlAnswer(body: string): S3Answer {
  return { status: 200, headers: { "content-type": "application/xml" }, body: xml(body) };
}

const xml = (body: string) => `<?xml version="1.0" encoding="UTF-8"?>\n${body}`;
const compare = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
const digest = (algorithm: string, bytes: Buffer, form: "hex" | "base64") =>
  createHash(algorithm).update(bytes).digest(form);

function escaped(text: string): string {
  return text.replace(
    /[&<>"]/g,
    (c) => `&${({ "&": "amp", "<": "lt", ">": "gt", '"': "quot" } as Record<string, string>)[c]};`,
  );
}

/** The document of an error. */
export function errorAnswer({ status, code, message }: S3Error): S3Answer {
  const body = `<Error><Code>${code}</Code><Message>${escaped(message)}</Message><RequestId>FAKE</RequestId></Error>`;
  return { ...xmlAnswer(body), status };
}
