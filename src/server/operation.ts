import type { RequestHandler } from "express";
import type { ServiceErrorCode } from "../contract/errors.ts";
import type { Vendor } from "../contract/test-api.ts";
import type { HandlerDeps } from "./deps.ts";
import type { ErrorStyle } from "./http/errors.ts";
import type { ParameterId } from "./http/parameters.ts";

/** One operation of the HTTP API. Names point into the OpenAPI tables of schemas, parameters, headers and examples. */
export interface Operation {
  /** `operationId` of the OpenAPI document. */
  id: string;
  method: "get" | "head" | "post" | "delete";
  /** With `{name}` where a path has a variable part. */
  path: string;
  summary: string;
  parameters?: readonly ParameterId[];
  /** Name of the schema of the JSON body. */
  body?: string;
  /** The JSON body may be left out. Default: it may not. */
  isBodyOptional?: true;
  /** Types of bodies that are not JSON, or not only. */
  bytesBody?: readonly string[];
  /** Name of the schema of a form (`multipart/form-data`) that may take the place of the JSON body. */
  formBody?: string;
  answers: Readonly<Record<number, Answer>>;
  /** The errors that this operation adds to `EVERYWHERE` and to those of its surface's credential. */
  errors?: readonly ServiceErrorCode[];
  /** Checks between the credential and the handler, in order. */
  guards?: readonly MakeHandler[];
  handler: MakeHandler;
}

/** A successful response: a JSON body of this schema, bytes of these types, or no body. */
export interface Answer {
  description: string;
  schema?: string;
  /** A stream of values of this schema: as events, or as a JSON array. */
  streamOf?: string;
  /** Instead, when the request asks for it, a stream of events of this schema. */
  eventsOf?: string;
  bytes?: readonly string[];
  headers?: readonly string[];
}

/** Operations that share a credential: one API as its clients know it. */
export interface Surface {
  /** Tag of the operations in the OpenAPI document. */
  tag: "batches" | "realtime" | "files" | "account" | "console" | "tests" | "operations";
  /** Every path below belongs to the surface: without a credential an unknown one is 401, not 404. */
  prefix: string;
  /** A path is matched with these in order: `/models` stands before `/{id}`. */
  operations: readonly Operation[];
  /** Null when no key is needed. */
  credential: Credential | null;
  /** The vendor whose API this is: faults of tests meet its operations. Null for our own APIs. */
  vendor: Vendor | null;
  /** The operations are there only in a service for tests (`serve --test`, `exec`). */
  isForTests?: true;
  /** Checks of each operation, behind its own. */
  guards?: readonly MakeHandler[];
  /** Checks the path of a request before any operation is looked for. */
  screen?: MakeHandler;
  /** The first pattern that matches a path decides on its errors; that of the batch API where none does. */
  errorStyles?: readonly (readonly [pattern: RegExp, style: ErrorStyle])[];
}

export interface Credential {
  /** Names of the security schemes of the OpenAPI document that are accepted. */
  schemes: readonly string[];
  authenticate: MakeHandler;
  /** The errors of every operation that needs this credential. */
  errors: readonly ServiceErrorCode[];
}

type MakeHandler = (deps: HandlerDeps) => RequestHandler;
