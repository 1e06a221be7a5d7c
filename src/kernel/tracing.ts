/** Facts of a span: ids, names and numbers. Never a prompt, a key, a header, a body, a file's content or a query. */
type SpanFacts = Readonly<Record<string, string | number | boolean>>;

interface SpanOptions {
  /** The headers that name its parent, as W3C's `traceparent` does; null begins a new trace. Default: the span that runs now. */
  parent?: Readonly<Record<string, string | string[] | undefined>> | null;
  /** When it began, by `performance.now()`. Default: now. */
  startedAt?: number;
  /** `server`: a request that came in. `client`: one that leaves. Default: work in this process. */
  kind?: "server" | "client";
}

/** Spans tell an operator's collector what the service did, and for how long. */
export interface Tracer {
  /** Runs `work` in a span, which ends with it. Of an error, only its code is told. */
  span<T>(name: string, facts: SpanFacts, work: () => Promise<T>, options?: SpanOptions): Promise<T>;
  /** Adds facts to the span that runs now. */
  note(facts: SpanFacts): void;
  /** The headers that name the span that runs now as the parent of another service's spans. */
  headers(): Readonly<Record<string, string>>;
}

const NO_HEADERS = {};
const NO_TRACER: Tracer = { span: (_name, _facts, work) => work(), note() {}, headers: () => NO_HEADERS };

/** Where spans go: nowhere, until the service is given a tracer. */
export let tracer: Tracer = NO_TRACER;

/** Sends spans to another tracer from now on; null: nowhere. */
export function setTracer(next: Tracer | null): void {
  tracer = next ?? NO_TRACER;
}
