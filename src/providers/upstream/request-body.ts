import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import type { ReferenceImage } from "../../domain/ports/image-provider.ts";

/** A body that is made while it is sent, so that the bytes of its references are in memory one image at a time. */
export interface RequestBody {
  contentType: string;
  /** Returns all of it at once; null when references must be read for it. */
  whole(): Buffer | null;
  /** Reads the length of each reference, not more. */
  length(): Promise<number>;
  stream(): Readable;
  /** Why a reference could not be read while the body was sent; null when all could. */
  failure(): { reason: unknown } | null;
}

export interface UpstreamRequest {
  method: "GET" | "POST" | "DELETE";
  /** From the base URL on, with the query. */
  path: string;
  headers: Readonly<Record<string, string>>;
  body?: RequestBody;
  /** The caller's texts in the body: an error that repeats them is not judged by them. */
  asked?: string;
  /** The answer shows something that has a `name`, and may hold the `error` of it. Default: an `error` is one. */
  isOperation?: boolean;
  /** A success needs no body. */
  mayBeEmpty?: boolean;
}

/** Stands in a JSON value for the Base64 of a reference. `before`: text in front of it, such as that of a data URL. */
export class ReferenceText {
  readonly image: ReferenceImage;
  readonly before: string;

  constructor(image: ReferenceImage, before = "") {
    this.image = image;
    this.before = before;
  }
}

/** The data URL of a reference, for a JSON value. */
export function dataUrlOf(image: ReferenceImage): ReferenceText {
  return new ReferenceText(image, `data:${image.mimeType};base64,`);
}

/** A part of a body: text, or a reference as Base64 or as it is. */
type Piece = { text: string } | { image: ReferenceImage; as: "base64" | "bytes" };

/** Writes a value as JSON. It may hold `ReferenceText` anywhere. */
export function jsonBody(value: unknown): RequestBody {
  return bodyOf("application/json", jsonPieces(value));
}

/** Writes values as JSON, one in each line. They may hold `ReferenceText` anywhere. */
export function jsonLinesBody(values: readonly unknown[]): RequestBody {
  const pieces = values.flatMap((value) => [...jsonPieces(value), { text: "\n" }]);
  return bodyOf("application/jsonl", pieces);
}

function jsonPieces(value: unknown): Piece[] {
  const images: ReferenceImage[] = [];
  // No text of a caller holds it.
  const mark = randomUUID();
  const json = JSON.stringify(value, (_key, each: unknown) => {
    if (!(each instanceof ReferenceText)) return each;
    images.push(each.image);
    return each.before + mark;
  });
  return json.split(mark).flatMap((text, i): Piece[] => {
    const image = images[i - 1];
    return image === undefined ? [{ text }] : [{ image, as: "base64" }, { text }];
  });
}

export interface FormFile {
  field: string;
  fileName: string;
  image: ReferenceImage;
}

/** A body of these bytes. */
export function bytesBody(contentType: string, bytes: Buffer): RequestBody {
  return {
    contentType,
    whole: () => bytes,
    length: async () => bytes.length,
    stream: () => Readable.from([bytes]),
    failure: () => null,
  };
}

/** Writes `multipart/form-data` (RFC 7578): the fields, then the files. */
export function formBody(fields: Readonly<Record<string, string>>, files: readonly FormFile[]): RequestBody {
  const boundary = `imgbatch-${randomUUID()}`;
  const pieces: Piece[] = Object.entries(fields).map(([name, value]) => ({
    text: `--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"\r\n\r\n${value}\r\n`,
  }));
  for (const { field, fileName, image } of files) {
    const disposition = `form-data; name="${quoted(field)}"; filename="${quoted(fileName)}"`;
    const head = `--${boundary}\r\ncontent-disposition: ${disposition}\r\ncontent-type: ${image.mimeType}\r\n\r\n`;
    pieces.push({ text: head }, { image, as: "bytes" }, { text: "\r\n" });
  }
  return bodyOf(`multipart/form-data; boundary=${boundary}`, [...pieces, { text: `--${boundary}--\r\n` }]);
}

/** Writes `multipart/form-data` with fields and one file whose content is a body of its own. */
export function fileFormBody(
  fields: Readonly<Record<string, string>>,
  file: { field: string; fileName: string; body: RequestBody },
): RequestBody {
  const boundary = `imgbatch-${randomUUID()}`;
  const { field, fileName, body } = file;
  const parts = Object.entries(fields).map(
    ([name, value]) =>
      `--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"\r\n\r\n${value}\r\n`,
  );
  const disposition = `form-data; name="${quoted(field)}"; filename="${quoted(fileName)}"`;
  const head = `${parts.join("")}--${boundary}\r\ncontent-disposition: ${disposition}\r\ncontent-type: ${body.contentType}\r\n\r\n`;
  const tail = `\r\n--${boundary}--\r\n`;
  async function* bytes(): AsyncGenerator<Buffer> {
    yield Buffer.from(head);
    yield* body.stream() as AsyncIterable<Buffer>;
    yield Buffer.from(tail);
  }
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    whole: () => null,
    length: async () => Buffer.byteLength(head + tail) + (await body.length()),
    stream: () => Readable.from(bytes(), { objectMode: false, highWaterMark: 64 * 1024 }),
    failure: () => body.failure(),
  };
}

/** As browsers do it (HTML, "multipart form data"). */
function quoted(name: string): string {
  return name.replaceAll("\r", "%0D").replaceAll("\n", "%0A").replaceAll('"', "%22");
}

function bodyOf(contentType: string, pieces: readonly Piece[]): RequestBody {
  let failed: { reason: unknown } | null = null;
  async function* bytes(): AsyncGenerator<Buffer> {
    for (const piece of pieces) {
      const made = await bytesOf(piece).catch((reason: unknown) => {
        failed = { reason };
        throw reason;
      });
      if (made.length > 0) yield made;
    }
  }
  return {
    contentType,
    whole: () => {
      const texts = pieces.flatMap((piece) => ("text" in piece ? piece.text : []));
      return texts.length === pieces.length ? Buffer.from(texts.join("")) : null;
    },
    length: async () => {
      let sum = 0;
      for (const piece of pieces) sum += await lengthOf(piece);
      return sum;
    },
    // Without object mode it reads ahead by bytes, not by sixteen images.
    stream: () => Readable.from(bytes(), { objectMode: false, highWaterMark: 64 * 1024 }),
    failure: () => failed,
  };
}

async function lengthOf(piece: Piece): Promise<number> {
  if ("text" in piece) return Buffer.byteLength(piece.text);
  const length = await piece.image.lend(async (bytes) => bytes.length);
  return piece.as === "bytes" ? length : 4 * Math.ceil(length / 3);
}

async function bytesOf(piece: Piece): Promise<Buffer> {
  if ("text" in piece) return Buffer.from(piece.text);
  if (piece.as === "bytes") return piece.image.read();
  return piece.image.lend(async (bytes) => Buffer.from(bytes.toString("base64"), "latin1"));
}
