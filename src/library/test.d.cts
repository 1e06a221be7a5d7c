/** How the service of the tests answers. */
export interface TestOptions {
  /** The vendor whose pictures are replayed. The APIs of both are served in any case. Default: google. */
  vendor?: "google" | "openai";
  /** The directory with recorded pictures, seen from the working directory. Default: drawings. */
  replay?: string;
  /** Whose recordings they are: a vendor, or a provider of the configuration. Default: `vendor`. */
  upstream?: string;
}

/**
 * What happens to the next requests. One of `status`, `empty`, `refuse` and `lost`; `delay_ms` and `cut_after` beside it or
 * alone.
 */
export interface Fault {
  /** How many requests meet the fault. Default: 1. */
  times?: number;
  /** Instead, this share of all requests that match, evenly: 0.25 is every fourth. */
  share?: number;
  /** Only requests to the API of this vendor. */
  surface?: "openai" | "google";
  /** Only requests that name this model. */
  model?: string;
  /** Only requests with this text in their body, such as a part of the prompt. */
  text?: string;
  /** An error of this HTTP status, 400 to 599, in the vendor's own words. Nothing is made. */
  status?: number;
  /** Seconds in `Retry-After`, beside `status`. */
  retry_after?: number;
  /** How much later the answer comes, in ms. */
  delay_ms?: number;
  /** The connection ends after this many bytes of the answer's body. */
  cut_after?: number;
  /** A success without images. Nothing is made. */
  empty?: true;
  /** A refusal for this reason, such as `SAFETY`. Nothing is made. */
  refuse?: string;
  /** The picture is made and charged, and the connection ends without an answer. */
  lost?: true;
}

/** A request that the service has had. */
export interface TestRequest {
  method: string;
  /** Without its query. */
  path: string;
  /** JSON as it came, the fields of a form, or a text. A long image is its size in words. Null: there is none. */
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into it as it likes.
  body?: any;
  /** `status` is null while there is no answer, and where none came. */
  answer: { status: number | null };
}

/** A service for the tests of this process. Its address and its key are in the variables that client libraries read. */
export interface TestService {
  /** `http://127.0.0.1:PORT`, without a path. */
  url: string;
  key: string;
  /** Orders a fault for the next requests. `test`: only those with this `x-imgbatch-test`. Throws for a wrong field. */
  fail(fault: Fault, test?: string): Promise<void>;
  /** The requests that the service has had since the last reset, the oldest first. */
  requests(test?: string): Promise<TestRequest[]>;
  /** Ends all faults and forgets the requests: of this `test`, or of those without one. */
  reset(test?: string): Promise<void>;
}

/**
 * Gives the tests of a file a service, in vitest or jest. It is there, with its address and key in the environment, when this
 * returns. The files of a worker share it, and after each test it is reset. It ends with the worker, also with one that is
 * killed. Throws when the service cannot start.
 */
export function useImgbatch(options?: TestOptions): TestService;

/** Starts a service for any other program, with its address and key in the environment until `stop`. */
export function startImgbatch(options?: TestOptions): Promise<TestService & { stop(): Promise<void> }>;
