import type { Readable } from "node:stream";
import { Dicer } from "@fastify/busboy";
import type { Chunk } from "../../../domain/files/upload.ts";
import { fieldError } from "../../request-problems.ts";
import { METADATA_BYTES } from "./file-facts.ts";

const MOST_HEADER_PAIRS = 20;
/** A form has two parts that count. */
const MOST_PARTS = 10;

type PartHeaders = Readonly<Record<string, readonly string[] | undefined>>;

/** A multipart body without the bytes of its file. */
interface Form {
  /** The JSON that describes the file; empty without one. */
  metadata: string;
  /** The declared type of the file. */
  fileType: string | undefined;
  hasFile: boolean;
}

export interface FormReader {
  /** Takes the next bytes of the body. The bytes of the file are stored when this resolves. */
  add(bytes: Buffer): Promise<void>;
  /** Returns the form after the last bytes. */
  end(): Promise<Form>;
}

/**
 * Reads a file and the JSON that describes it from a multipart body (RFC 2046). Parts of other names are dropped. Both
 * methods throw `REALTIME_INVALID_ARGUMENT` and the errors of the chunk.
 */
export function readForm(boundary: string, chunk: Pick<Chunk, "add">): FormReader {
  const form: Form = { metadata: "", fileType: undefined, hasFile: false };
  const parser = new Dicer({ boundary, maxHeaderPairs: MOST_HEADER_PAIRS });
  const reading: Promise<void>[] = [];
  let failure: { error: unknown } | null = null;
  let parts = 0;
  const fail = (error: unknown) => {
    failure ??= { error };
  };
  const throwIfFailed = () => {
    if (failure !== null) throw failure.error;
  };
  parser.on("error", () => fail(invalid("breaks off before its last boundary")));
  parser.on("part", (part: Readable) => {
    const isFirst = ++parts === 1;
    if (parts > MOST_PARTS) {
      fail(invalid(`has more than ${MOST_PARTS} parts`));
      part.on("error", () => {}).resume();
      return;
    }
    // A part that breaks off within its headers has no reader yet.
    part.on("error", () => {});
    part.on("header", (headers: PartHeaders) => {
      const work = readPart(part, { headers, isFirst }, form, chunk);
      reading.push(work.catch(fail).finally(() => part.resume()));
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
      await Promise.all(reading);
      throwIfFailed();
      if (!form.hasFile) throw invalid("has no part with the file");
      return form;
    },
  };
}

async function readPart(
  part: Readable,
  { headers, isFirst }: { headers: PartHeaders; isFirst: boolean },
  form: Form,
  chunk: Pick<Chunk, "add">,
): Promise<void> {
  const disposition = headers["content-disposition"]?.[0] ?? "";
  const name = /;\s*name="?([^";]*)/i.exec(disposition)?.[1];
  if (name === "metadata" || (name === undefined && isFirst)) form.metadata = await readText(part);
  else if (name === undefined || name === "file" || /;\s*filename\*?=/i.test(disposition)) {
    if (form.hasFile) throw invalid("has more than one file");
    form.hasFile = true;
    form.fileType = headers["content-type"]?.[0];
    for await (const bytes of bytesOf(part)) await chunk.add(bytes);
  }
}

async function readText(part: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const bytes of bytesOf(part)) {
    size += bytes.length;
    if (size > METADATA_BYTES) throw invalid(`has more than ${METADATA_BYTES} bytes of metadata`);
    chunks.push(bytes);
  }
  return String(Buffer.concat(chunks));
}

/** The parser would wait for ever for a part that is destroyed when its reader fails. */
const bytesOf = (part: Readable): AsyncIterable<Buffer> => part.iterator({ destroyOnReturn: false });

const invalid = (problem: string) => fieldError("REALTIME_INVALID_ARGUMENT", "body", problem);
