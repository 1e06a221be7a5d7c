import { z } from "zod";
import { type BatchStatus, isTerminal } from "../../contract/statuses.ts";
import { numberToMicros } from "../../kernel/money.ts";

const MOST_USD = 1_000_000_000;
const LAST_SECOND = 8_640_000_000_000;

/**
 * Other services of this kind leave out fields, add some, and name two statuses differently. Reading is tolerant: a
 * missing field is null, a number may be written as text, an unknown field stays in `raw`, and an unknown status is
 * never "done".
 */
export const text = z.string().nullish().catch(null);
const asNumber = (value: unknown) =>
  typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
const count = z.preprocess(asNumber, z.int().min(0).nullish()).catch(null);
/** Dollars, as many as can be counted in micro-dollars. */
export const usd = z.number().min(-MOST_USD).max(MOST_USD);
/** Dollars, also as text; null when it is neither. */
export const amount = z.preprocess(asNumber, usd.nullish()).catch(null);
/** Seconds since 1970, within the range of dates. */
const moment = z.preprocess(asNumber, z.int().min(-LAST_SECOND).max(LAST_SECOND).nullish()).catch(null);

const batchSchema = z.looseObject({
  id: z.string().min(1),
  status: z.string(),
  task_name: text,
  model: text,
  parent_batch_id: text,
  provider: text,
  source: text,
  item_count: count,
  success_count: count,
  fail_count: count,
  estimated_cost: amount,
  actual_cost: amount,
  created_at: moment,
  error: z.looseObject({ code: text, message: text }).nullish().catch(null),
  upstream_jobs: z
    .array(z.looseObject({ state: z.string(), created_at: moment }))
    .nullish()
    .catch(null),
  waiting: z.looseObject({ code: z.string(), message: z.string(), until: moment }).nullish().catch(null),
});

export interface BatchWaiting {
  /** One of `WAITING_CODES`, or the service's own word. */
  code: string;
  message: string;
  /** Null: until the configuration of the service changes. */
  untilMs: number | null;
}

/** A batch as the client sees it. */
export interface Batch {
  id: string;
  /** A known status, or the service's own word. */
  status: BatchStatus | (string & {});
  isDone: boolean;
  name: string | null;
  model: string | null;
  parentId: string | null;
  provider: string | null;
  /** The API that it was made with, such as `native`; null when the service does not say. */
  source: string | null;
  itemCount: number | null;
  /** 0 also when the service does not say; `hasCounts` is false then. */
  successCount: number;
  failCount: number;
  /** Whether the service reports the numbers of made and of all images. */
  hasCounts: boolean;
  estimatedCostMicroUsd: number | null;
  actualCostMicroUsd: number | null;
  createdAtMs: number | null;
  error: { code: string; message: string } | null;
  /** Why the items cannot be made now; null when they can, or the service does not say. */
  waiting: BatchWaiting | null;
  /** The jobs at an upstream that make its items; empty when there are none, or the service does not say. */
  jobs: readonly { state: string; createdAtMs: number }[];
  /** The object as it came. */
  raw: Record<string, unknown>;
}

/** Null when the value is not a batch. */
export function readBatch(value: unknown): Batch | null {
  const parsed = batchSchema.safeParse(value);
  if (!parsed.success) return null;
  const wire = parsed.data;
  const status = wire.status === "submitting" ? "queued" : wire.status;
  const { item_count, success_count, fail_count } = wire;
  return {
    id: wire.id,
    status,
    isDone: isTerminal(status),
    name: wire.task_name ?? null,
    model: wire.model ?? null,
    parentId: wire.parent_batch_id ?? null,
    provider: wire.provider ?? null,
    source: wire.source ?? null,
    itemCount: item_count ?? null,
    successCount: success_count ?? 0,
    failCount: fail_count ?? 0,
    hasCounts: success_count != null && (item_count != null || fail_count != null),
    estimatedCostMicroUsd: micros(wire.estimated_cost),
    actualCostMicroUsd: micros(wire.actual_cost),
    createdAtMs: wire.created_at == null ? null : wire.created_at * 1000,
    error: wire.error ? { code: wire.error.code ?? "UNKNOWN", message: wire.error.message ?? "" } : null,
    waiting: isTerminal(status) ? null : waitingOf(wire.waiting),
    jobs: (wire.upstream_jobs ?? []).flatMap(({ state, created_at }) =>
      created_at == null ? [] : [{ state, createdAtMs: created_at * 1000 }],
    ),
    raw: value as Record<string, unknown>,
  };
}

function waitingOf(waiting: z.infer<typeof batchSchema>["waiting"]): BatchWaiting | null {
  if (!waiting) return null;
  const { code, message, until } = waiting;
  return { code, message, untilMs: until == null ? null : until * 1000 };
}

function micros(usd: number | null | undefined): number | null {
  return usd == null ? null : numberToMicros(usd);
}
