import type { ServiceErrorCode } from "../../contract/errors.ts";

/** What a successful answer carries: a JSON body of this schema, or bytes of these types, or nothing. */
export interface Answer {
  description: string;
  schema?: string;
  /** A stream of values of this schema: as events, or as a JSON array. */
  streamOf?: string;
  bytes?: readonly string[];
  headers?: readonly string[];
}

/** One operation of the HTTP API. Names point into the tables of schemas, parameters, headers and examples. */
export interface Operation {
  id: string;
  method: "get" | "head" | "post" | "delete";
  /** With `{name}` where a path has a variable part. */
  path: string;
  summary: string;
  needsKey: boolean;
  /** Whose errors and credentials it has: the batch API's (default), the native one's, or either's. */
  api?: "native" | "shared";
  parameters?: readonly string[];
  /** Name of the schema of the JSON body. */
  body?: string;
  answers: Readonly<Record<number, Answer>>;
  /** What can go wrong here, beyond `EVERYWHERE` and what every operation with a key can answer. */
  errors?: readonly ServiceErrorCode[];
}
