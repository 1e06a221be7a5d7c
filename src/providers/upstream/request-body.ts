import { randomUUID } from "node:crypto";
import type { ReferenceImage } from "../../domain/ports/image-provider.ts";

/** A body that is made while it is sent, so that the bytes of its references are in memory one image at a time. */
export interface RequestBody {
  contentType: string;
  /** Reads the length of each reference, not more. */
  length(): Promise<number>;
  /** Yields the body. Rejects with the reason why a reference cannot be read. */
  open(): AsyncIterable<Buffer>;
}

export interface UpstreamRequest {
  method: "GET" | "POST" | "DELETE";
  /** From the base URL on, with the query. */
  path: string;
  headers: Readonly<Record<string, string>>;
  body?: RequestBody;
  /** The caller's texts in the body: an error that repeats them is not judged by them. */
  asked?: string;
  /** The field of something that an answer shows, which may hold an `error` of its own. Default: an `error` is one. */
  shows?: readonly string[];
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

/** A part of a body: text, a reference as Base64 or as it is, or another body. */
type Piece = { text: string } | { image: ReferenceImage; as: "base64" | "bytes" } | { body: RequestBody };

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

/** A file of a form: a reference, or a body of its own. */
interface FormFile {
  field: string;
  fileName: string;
  content: ReferenceImage | RequestBody;
}

/** Writes `multipart/form-data` (RFC 7578): the fields, then the files. */
export function formBody(fields: Readonly<Record<string, string>>, files: readonly FormFile[]): RequestBody {
  const boundary = `imgbatch-${randomUUID()}`;
  const pieces: Piece[] = Object.entries(fields).map(([name, value]) => ({
    text: `--${boundary}\r\ncontent-disposition: form-data; name="${quoted(name)}"\r\n\r\n${value}\r\n`,
  }));
  for (const { field, fileName, content } of files) {
    const disposition = `form-data; name="${quoted(field)}"; filename="${quoted(fileName)}"`;
    const type = "mimeType" in content ? content.mimeType : content.contentType;
    const head = `--${boundary}\r\ncontent-disposition: ${disposition}\r\ncontent-type: ${type}\r\n\r\n`;
    const piece: Piece = "mimeType" in content ? { image: content, as: "bytes" } : { body: content };
    pieces.push({ text: head }, piece, { text: "\r\n" });
  }
  return bodyOf(`multipart/form-data; boundary=${boundary}`, [...pieces, { text: `--${boundary}--\r\n` }]);
}

/** As browsers do it (HTML, "multipart form data"). */
function quoted(name: string): string {
  return name.replaceAll("\r", "%0D").replaceAll("\n", "%0A").replaceAll('"', "%22");
}

function bodyOf(contentType: string, pieces: readonly Piece[]): RequestBody {
  return {
    contentType,
    length: async () => {
      let sum = 0;
      for (const piece of pieces) sum += await lengthOf(piece);
      return sum;
    },
    open: async function* () {
      for (const piece of pieces) {
        if ("body" in piece) yield* piece.body.open();
        else yield await bytesOf(piece);
      }
    },
  };
}

async function lengthOf(piece: Piece): Promise<number> {
  if ("text" in piece) return Buffer.byteLength(piece.text);
  if ("body" in piece) return piece.body.length();
  const length = await piece.image.lend(async (bytes) => bytes.length);
  return piece.as === "bytes" ? length : 4 * Math.ceil(length / 3);
}

async function bytesOf(piece: Exclude<Piece, { body: RequestBody }>): Promise<Buffer> {
  if ("text" in piece) return Buffer.from(piece.text);
  if (piece.as === "bytes") return piece.image.read();
  return piece.image.lend(async (bytes) => Buffer.from(bytes.toString("base64"), "latin1"));
}
