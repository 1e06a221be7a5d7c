import type { Chunk } from "../../../domain/files/uploads.ts";
import { bodyError, type Part, readParts, textOf } from "../../request-body/multipart.ts";
import { METADATA_BYTES } from "./file-facts.ts";

/** A form has two parts that count. */
const MOST_PARTS = 10;

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
  const parts = readParts(boundary, MOST_PARTS, (part) => readPart(part, form, chunk));
  return {
    add: parts.add,
    end: async () => {
      await parts.end();
      if (!form.hasFile) throw bodyError("has no part with the file");
      return form;
    },
  };
}

async function readPart(part: Part, form: Form, chunk: Pick<Chunk, "add">): Promise<void> {
  const { name, type, isFirst, fileName } = part;
  if (name === "metadata" || (name === undefined && isFirst))
    form.metadata = await textOf(part, METADATA_BYTES);
  else if (name === undefined || name === "file" || fileName !== undefined) {
    if (form.hasFile) throw bodyError("has more than one file");
    form.hasFile = true;
    form.fileType = type;
    for await (const bytes of part.bytes()) await chunk.add(bytes);
  }
}
