import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";

export interface S3Credentials {
  accessKeyId: string;
  secretAccessKey: string;
  /** Temporary credentials have one, and every request must carry it. */
  sessionToken?: string;
}

export interface SignedRequest {
  method: string;
  /** As it arrived: the path and the query are still percent-encoded. */
  url: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** An error as S3 makes it. */
export class S3Error extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string = code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const MAX_SKEW_MS = 15 * 60_000;
const AUTHORIZATION =
  /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})$/;

const sha256 = (data: string | Buffer) => createHash("sha256").update(data).digest("hex");
const hmac = (key: string | Buffer, data: string) => createHmac("sha256", key).update(data).digest();

/**
 * Checks the signature in the headers of a request, its time and the hash of its body, and throws `S3Error` as S3
 * would. See AWS Signature Version 4 for S3, "Authenticating Requests: Using the Authorization Header".
 */
export function verifySignature(
  request: SignedRequest,
  { credentials, region, nowMs }: { credentials: S3Credentials; region: string; nowMs: number },
): void {
  const { headers } = request;
  if (headers.authorization === undefined) throw new S3Error(403, "AccessDenied", "Access Denied");
  const parsed = AUTHORIZATION.exec(headers.authorization);
  if (parsed === null) throw new S3Error(400, "AuthorizationHeaderMalformed");
  const [, accessKeyId, day = "", itsRegion, list = "", signature = ""] = parsed;
  if (itsRegion !== region) {
    const message = `The authorization header is malformed; the region '${itsRegion}' is wrong; expecting '${region}'`;
    throw new S3Error(400, "AuthorizationHeaderMalformed", message);
  }
  if (accessKeyId !== credentials.accessKeyId) throw new S3Error(403, "InvalidAccessKeyId");
  if (headers["x-amz-security-token"] !== credentials.sessionToken) throw new S3Error(400, "InvalidToken");
  const date = String(headers["x-amz-date"] ?? "");
  const sentMs = Date.parse(date.replace(/^(....)(..)(..T..)(..)(..Z)$/, "$1-$2-$3:$4:$5"));
  if (Number.isNaN(sentMs) || !date.startsWith(day)) throw new S3Error(403, "AccessDenied", "no valid date");
  if (Math.abs(nowMs - sentMs) > MAX_SKEW_MS) throw new S3Error(403, "RequestTimeTooSkewed");

  const signed = list.split(";");
  const must = ["host", ...Object.keys(headers).filter((name) => name.startsWith("x-amz-"))];
  const unsigned = must.filter((name) => !signed.includes(name));
  if (unsigned.length > 0) {
    const message = `There were headers present in the request which were not signed: ${unsigned.join()}`;
    throw new S3Error(403, "AccessDenied", message);
  }
  const payload = String(headers["x-amz-content-sha256"] ?? "");
  if (payload === "") throw new S3Error(400, "InvalidRequest", "x-amz-content-sha256 is missing");
  const scope = `${day}/${region}/s3/aws4_request`;
  const canonical = [
    request.method,
    decodedPath(request.url).split("/").map(encode).join("/"),
    canonicalQuery(request.url),
    ...signed.map(
      (name) =>
        `${name}:${String(headers[name] ?? "")
          .trim()
          .replace(/ +/g, " ")}`,
    ),
    "",
    list,
    payload,
  ].join("\n");
  const key = hmac(hmac(hmac(hmac(`AWS4${credentials.secretAccessKey}`, day), region), "s3"), "aws4_request");
  const expected = hmac(key, ["AWS4-HMAC-SHA256", date, scope, sha256(canonical)].join("\n"));
  if (!timingSafeEqual(expected, Buffer.from(signature, "hex")))
    throw new S3Error(403, "SignatureDoesNotMatch");
  if (payload !== "UNSIGNED-PAYLOAD" && payload !== sha256(request.body))
    throw new S3Error(400, "XAmzContentSHA256Mismatch");
}

/** The path as S3 reads it: a plus is a blank. It neither merges slashes nor resolves dots. */
export function decodedPath(url: string): string {
  return decodeURIComponent((url.split("?")[0] ?? "").replaceAll("+", " "));
}

function canonicalQuery(url: string): string {
  const pairs = (url.split("?")[1] ?? "").split("&").filter((pair) => pair !== "");
  const encoded = pairs.map((pair) => {
    const [name = "", value = ""] = pair.split("=").map((text) => encode(decodeURIComponent(text)));
    return `${name}=${value}`;
  });
  return encoded.sort().join("&");
}

function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
