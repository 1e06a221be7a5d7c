import type { SizeTier } from "../../contract/images/image-sizes.ts";
import type { ImageMimeType } from "../../contract/images/image-types.ts";
import type { Kept, PromptText } from "./spool.ts";

/** The shape and size that a line asks for. An absent one is that of the run. */
export interface Shape {
  aspectRatio?: string;
  size?: SizeTier;
}

/** One line of a prompt file, checked. */
export interface PromptItem extends Shape {
  /** Null when the line has none; the plan gives it one. */
  customId: string | null;
  prompt: PromptText;
  outputCount: number;
  references: PromptReference[];
  /** The JSON text of the fields that only the caller needs, as an object; null for none. */
  metadata: PromptText | null;
  /** File and line, for messages and results. */
  fileLine: FileLine;
}

export interface PromptReference {
  id?: string;
  type?: string;
  mimeType: ImageMimeType;
  sha256: string;
  bytes: number;
  /** 0 when the header does not say. */
  pixels: number;
  /** The bytes: in a file, or kept in the spool when they were inline. */
  source: { path: string } | { kept: Kept };
}

export interface FileLine {
  /** The file as the caller named it; `<stdin>` for standard input. */
  file: string;
  /** From 1. */
  line: number;
}

/** A problem in the input. Its message also gives the right form. */
export interface Problem {
  file: string;
  /** Null when it is about the file as a whole. */
  line: number | null;
  /** Null when it is about the line as a whole. */
  field: string | null;
  message: string;
}

/** Reports a problem of the row that is being read. */
export type Report = (field: string | null, message: string) => void;

export function formatProblem({ file, line, field, message }: Problem): string {
  return `${file}${line === null ? "" : `:${line}`}: ${field === null ? "" : `${field}: `}${message}`;
}
