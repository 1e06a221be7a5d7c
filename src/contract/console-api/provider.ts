import { z } from "zod";
import { microsToNumber } from "../../kernel/money.ts";

const usd = z.number().describe("US dollars, at most six decimals");
const unixSecondsOrNull = z.int().nullable().describe("Unix time in seconds");

const stateSchema = z.object({
  state: z.enum(["ok", "cooling", "disabled"]),
  until: unixSecondsOrNull.describe("when a pause ends"),
  reason: z.string().nullable(),
  failed_requests: z.int().describe("how many requests in a row have failed, the last one included"),
  said: z.string().nullable().describe("the upstream's own words, at most two lines"),
});

const sumsSchema = z.object({
  requests: z.int(),
  images: z.int(),
  errors: z.int(),
  may_be_paid_twice: z.int(),
  billed: usd.describe("US dollars that callers were billed"),
  upstream_cost: usd.describe("US dollars, as the upstream reports them; most report none"),
});

/** A configured provider: its state, and what it was asked. */
export const providerSchema = stateSchema.extend({
  name: z.string(),
  type: z.string().describe("of the configuration"),
  models: z.array(stateSchema.extend({ model: z.string() })).describe("those with a trouble of their own"),
  play_money: z.boolean().describe("it draws, and what callers were billed is no real money"),
  last_success_at: unixSecondsOrNull,
  last_hour: sumsSchema,
  total: sumsSchema,
  jobs: z.object({ at_work: z.int() }).optional().describe("of a provider that makes images in jobs"),
});
export type ProviderObject = z.infer<typeof providerSchema>;

interface Trouble {
  message: string;
  untilMs: number | null;
  said?: string | null;
  failures: number;
  /** The provider may be asked all the same. */
  isOver: boolean;
}
interface Sums {
  requests: number;
  images: number;
  errors: number;
  maybePaidTwice: number;
  billedMicroUsd: number;
  costMicroUsd: number;
}

/** The facts of a provider that `providerObject` shows. */
export interface ProviderFacts {
  name: string;
  type: string;
  /** The trouble of all models, and of some. */
  ofAll: Trouble | undefined;
  ofModels: readonly (Trouble & { model: string })[];
  lastHour: Sums;
  total: Sums & { lastSuccessMs: number | null };
  isPlay: boolean;
  jobs: { atWork: number } | null;
}

export function providerObject(facts: ProviderFacts): ProviderObject {
  const { name, type, ofAll, ofModels, lastHour, total, isPlay, jobs } = facts;
  return {
    name,
    type,
    ...stateView(ofAll),
    models: ofModels.map((trouble) => ({ model: trouble.model, ...stateView(trouble) })),
    play_money: isPlay,
    last_success_at: secondsOrNull(total.lastSuccessMs),
    last_hour: sumsView(lastHour),
    total: sumsView(total),
    ...(jobs && { jobs: { at_work: jobs.atWork } }),
  };
}

/** The word for the state of a provider with this trouble, or without one. */
export function stateOf(
  trouble: Pick<Trouble, "untilMs" | "isOver"> | undefined,
): "ok" | "cooling" | "disabled" {
  if (!trouble || trouble.isOver) return "ok";
  return trouble.untilMs === null ? "disabled" : "cooling";
}

function stateView(trouble: Trouble | undefined) {
  const until = secondsOrNull(trouble?.untilMs ?? null);
  return {
    state: stateOf(trouble),
    until,
    reason: trouble?.message ?? null,
    failed_requests: trouble?.failures ?? 0,
    said: trouble?.said ?? null,
  };
}

const secondsOrNull = (ms: number | null) => (ms === null ? null : Math.floor(ms / 1000));

function sumsView(sums: Sums) {
  const { requests, images, errors, maybePaidTwice, billedMicroUsd, costMicroUsd } = sums;
  return {
    requests,
    images,
    errors,
    may_be_paid_twice: maybePaidTwice,
    billed: microsToNumber(billedMicroUsd),
    upstream_cost: microsToNumber(costMicroUsd),
  };
}
