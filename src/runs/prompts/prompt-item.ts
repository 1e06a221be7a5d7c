import type { ImageMimeType } from "../../contract/image-formats.ts";
import type { RowSource } from "../../prompts/check-row.ts";
import type { FileLine } from "../../prompts/problems.ts";
import type { Shape } from "../../prompts/shape.ts";
import type { Kept, PromptText } from "./spool.ts";

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
  /** Set for a line of a run's own input: where the prompt was read at first. */
  source?: RowSource;
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
