import type { Readable } from "node:stream";
import { Dicer } from "@fastify/busboy";
import { FIXED_LIMITS } from "../../contract/limits.ts";
import { formatBytes } from "../../kernel/text.ts";
import { invalidArgument } from "../http/errors.ts";

/** RFC 2046, section 5.1.1. */
const BOUNDARY = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i;
const MOST_HEADER_PAIRS = 20;

/** One part of a multipart body (RFC 2046). */
export interface Part {
  /** The name of a form field (RFC 7578). */
  name: string | undefined;
  /** The name of the file that it is; undefined when it does not say that it is one. */
  fileName: string | undefined;
  type: string | undefined;
  isFirst: boolean;
  /** Its bytes, once, as they arrive. */
  bytes(): AsyncIterable<Buffer>;
}

interface PartReader {
  /** Takes the next bytes of the body. They have been read by the parts when this resolves. */
  add(bytes: Buffer): Promise<void>;
  /** Takes note of the end of the body. */
  end(): Promise<void>;
}

/** The boundary that a `Content-Type` names. Throws `REALTIME_INVALID_ARGUMENT` when there is none. */
export function boundaryOf(contentType: string | undefined): string {
  const [, quoted, plain] = BOUNDARY.exec(contentType ?? "") ?? [];
  const boundary = quoted ?? plain;
  if (boundary !== undefined) return boundary;
  throw invalidArgument("Content-Type", "needs the boundary of the parts");
}

/**
 * Splits a multipart body and passes each part to `readPart`, one at a time. The rest of a part that `readPart`
 * leaves unread is dropped. Both methods throw `REALTIME_INVALID_ARGUMENT` and the errors of `readPart`.
 */
export function readParts(
  boundary: string,
  maxParts: number,
  readPart: (part: Part) => Promise<void>,
): PartReader {
  const parser = new Dicer({ boundary, maxHeaderPairs: MOST_HEADER_PAIRS });
  let reading = Promise.resolve();
  let failure: { error: unknown } | null = null;
  let parts = 0;
  const fail = (error: unknown) => {
    failure ??= { error };
  };
  const throwIfFailed = () => {
    if (failure !== null) throw failure.error;
  };
  parser.on("error", () => fail(bodyError("breaks off before its last boundary")));
  parser.on("part", (part: Readable) => {
    const isFirst = ++parts === 1;
    // A part that breaks off within its headers has no reader yet.
    part.on("error", () => {});
    if (parts > maxParts) fail(bodyError(`has more than ${maxParts} parts`));
    if (failure !== null) {
      part.resume();
      return;
    }
    part.on("header", (headers: PartHeaders) => {
      const read = async () => {
        if (failure !== null) return;
        const described = describe(headers);
        refuseLongName(described.name);
        await readPart({ ...described, isFirst, bytes: () => bytesOf(part) });
      };
      // The end of a part and the beginning of the next one come together.
      reading = reading.then(read).catch(fail);
      reading = reading.finally(() => part.resume());
    });
  });
  let isOver = false;
  let goOn = () => {};
  // Comes with the last boundary or after `end`. The parser takes nothing afterwards, not even the end of a write.
  parser.once("finish", () => {
    isOver = true;
    goOn();
  });
  const unlessOver = (step: (done: () => void) => void) =>
    new Promise<void>((resolve) => {
      goOn = resolve;
      if (isOver) resolve();
      else step(resolve);
    });
  return {
    add: async (bytes) => {
      await unlessOver((done) => parser.write(bytes, () => done()));
      throwIfFailed();
    },
    end: async () => {
      await unlessOver(() => parser.end());
      await reading;
      throwIfFailed();
    },
  };
}

/** The text of a part. Throws `REALTIME_INVALID_ARGUMENT` when it has more than `maxBytes`. */
export async function textOf(part: Part, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const bytes of part.bytes()) {
    size += bytes.length;
    if (size > maxBytes) {
      throw invalidArgument(part.name || "body", `has more than ${formatBytes(maxBytes)}`);
    }
    chunks.push(bytes);
  }
  return String(Buffer.concat(chunks));
}

function refuseLongName(name = ""): void {
  const most = FIXED_LIMITS.jsonNameBytes;
  // The bytes of a header are one character each.
  if (name.length <= most) return;
  throw invalidArgument(`${name.slice(0, 40)}…`, `the name of a field has at most ${most} bytes`);
}

type PartHeaders = Readonly<Record<string, readonly string[] | undefined>>;

function describe(headers: PartHeaders): Pick<Part, "name" | "fileName" | "type"> {
  const disposition = headers["content-disposition"]?.[0] ?? "";
  return {
    name: /;\s*name="?([^";]*)/i.exec(disposition)?.[1],
    fileName: fileNameOf(disposition),
    type: headers["content-type"]?.[0],
  };
}

/** Some clients write RFC 5987's form, which counts where both are there. The bytes of a header are one character each. */
function fileNameOf(disposition: string): string | undefined {
  const [, extended] = /;\s*filename\*=utf-8''([^\s;]*)/i.exec(disposition) ?? [];
  const [, quoted, plain] = /;\s*filename\*?=(?:"((?:[^"\\]|\\.)*)"?|([^\s;]*))/i.exec(disposition) ?? [];
  const bytes = extended?.replace(/%([0-9a-f]{2})/gi, (_, code) =>
    String.fromCharCode(Number.parseInt(code, 16)),
  );
  const text = bytes ?? quoted?.replace(/\\(.)/g, "$1") ?? plain;
  return text === undefined ? undefined : Buffer.from(text, "latin1").toString();
}

/** The parser would wait for ever for a part that is destroyed when its reader fails. */
const bytesOf = (part: Readable): AsyncIterable<Buffer> => part.iterator({ destroyOnReturn: false });

/** An error about the body as a whole. */
const bodyError = (problem: string) => invalidArgument("body", problem);
