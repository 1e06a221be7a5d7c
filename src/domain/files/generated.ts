/** A file that the service makes when it is downloaded: the results of a batch job. */
export interface GeneratedFile {
  sizeBytes: number;
  /** Changes whenever a byte does. */
  etag: string;
  mimeType: string;
  createdAtMs: number;
  /** When it is deleted; null when it is kept. */
  expiresAtMs: number | null;
  /** Bytes `start` to `end`, inclusive. Each part is valid until the next one is asked for. */
  open(range: { start: number; end: number }): AsyncIterable<Buffer>;
}

/**
 * Finds a generated file of a key by its id, such as `batch-…`; null when there is none. Uploaded files of the same id
 * come first.
 */
export type FindGeneratedFile = (apiKeyId: string, id: string) => Promise<GeneratedFile | null>;
