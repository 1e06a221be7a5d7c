import { z } from "zod";
import { toSeconds } from "../kernel/durations.ts";
import { microsToNumber } from "../kernel/money.ts";
import { listOf } from "./batch-api.ts";
import { BATCH_STATUSES } from "./statuses.ts";

const expiresAt = z.int().describe("Unix time in seconds");

/** A code that a person signs in with. */
const signInCodeSchema = z.object({
  object: z.literal("console.code"),
  code: z.string().describe("works once, also in the address of the page: behind `/#code=`"),
  expires_at: expiresAt,
});

/** A session of the console. */
const sessionSchema = z.object({
  object: z.literal("console.session"),
  token: z.string().describe("goes into `Authorization: Bearer`, wherever a key does"),
  expires_at: expiresAt,
});

/** A link that downloads the ZIP of a batch without a key. */
const ticketSchema = z.object({
  object: z.literal("download.ticket"),
  url: z.string().describe("takes the query of a download, too; works once"),
  expires_at: expiresAt,
});

/** The page of a console with a code to sign in with. A wildcard address is no address to go to: loopback is. */
export function signInUrl(baseUrl: string, code: string): string {
  const reachable = baseUrl.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]");
  return `${reachable.replace(/\/+$/, "")}/#code=${code}`;
}

const usd = z.number().describe("US dollars, at most six decimals");
const unixSeconds = z.int().describe("Unix time in seconds");

const moneySchema = z.object({
  balance: usd.describe("US dollars that can be spent now, without what is held"),
  held: usd.describe("US dollars held for batches that are not settled, and for requests at work"),
});

const limitsSchema = z
  .object({
    items_per_batch: z.int(),
    output_images_per_batch: z.int(),
    output_count_per_item: z.int(),
    prompt_chars: z.int(),
    reference_image_bytes: z.int(),
    reference_images_per_batch: z.int(),
    reference_bytes_per_batch: z.int(),
    create_body_bytes: z.int(),
    zip_items: z.int(),
  })
  .describe("how much goes into one batch, one prompt and one ZIP");

/** The account of a key, as `GET /v1/account` returns it. */
const accountSchema = moneySchema.extend({
  object: z.literal("account"),
  play_money: z.boolean().describe("its money is play money, which buys drawings only"),
  real_money: moneySchema.nullable().describe("the account that pays for images of upstreams in its place"),
  key: z.object({ name: z.string(), prefix: z.string().describe("the first characters of the key") }),
  owner: z.boolean().describe("the key is that of `credentials.json`: it sees the whole service"),
  limits: limitsSchema,
});
export type AccountObject = z.infer<typeof accountSchema>;

/** The payments of a key for one model on one day, with real money or with play money. */
const usageSchema = z.object({
  day: z.string().describe("a day of UTC such as 2030-01-31; batches count when they are settled"),
  model: z.string(),
  image_count: z.int(),
  cost: usd,
  play_money: z.boolean().describe("the images are drawn, and the cost is no real money"),
});
export type UsageObject = z.infer<typeof usageSchema>;

/** A movement of money. */
const ledgerEntrySchema = z.object({
  kind: z.enum(["top_up", "hold", "capture", "release", "charge", "grant", "take_back"]),
  amount: usd,
  balance_change: usd,
  held_change: usd,
  balance: usd.describe("the balance of the account after the entry"),
  play_money: z.boolean().describe("which of the two accounts it belongs to"),
  batch_id: z.string().nullable().describe("null without a batch, and for a batch of another key"),
  batch_name: z.string().nullable().describe("the name of that batch"),
  created_at: unixSeconds,
});
export type LedgerEntryObject = z.infer<typeof ledgerEntrySchema>;

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
const providerSchema = stateSchema.extend({
  name: z.string(),
  type: z.string().describe("of the configuration"),
  models: z.array(stateSchema.extend({ model: z.string() })).describe("those with a trouble of their own"),
  play_money: z.boolean().describe("it draws, and what callers were billed is no real money"),
  last_success_at: unixSecondsOrNull,
  last_hour: sumsSchema,
  total: sumsSchema,
  jobs: z.object({ at_work: z.int() }).optional().describe("of a provider that makes images in jobs"),
});

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
interface ProviderFacts {
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

export function providerObject(facts: ProviderFacts): OverviewObject["providers"][number] {
  const { name, type, ofAll, ofModels, lastHour, total, isPlay, jobs } = facts;
  return {
    name,
    type,
    ...stateView(ofAll),
    models: ofModels.map((trouble) => ({ model: trouble.model, ...stateView(trouble) })),
    play_money: isPlay,
    last_success_at: toSeconds(total.lastSuccessMs),
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
  const until = toSeconds(trouble?.untilMs ?? null);
  return {
    state: stateOf(trouble),
    until,
    reason: trouble?.message ?? null,
    failed_requests: trouble?.failures ?? 0,
    said: trouble?.said ?? null,
  };
}

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

/** The whole service, as `GET /v1/console/service` shows it to its owner. */
const overviewSchema = z.object({
  object: z.literal("service.overview"),
  data_directory: z.string(),
  started_at: z.int().describe("Unix time in seconds"),
  disk_free_bytes: z.int().nullable().describe("null while it cannot be read"),
  queue: z.object({
    running: z.int().describe("images that are being made"),
    waiting: z.int().describe("images of batches that are not made yet"),
    concurrency: z.int().describe("the most images that are made at once"),
    paused: z.boolean(),
  }),
  money: moneySchema
    .extend({ play_money: z.boolean().describe("only drawings are made, and it is no real money") })
    .describe("of all accounts; real money where one of them has some"),
  batches: z
    .partialRecord(z.enum(BATCH_STATUSES), z.int())
    .describe("how many unfinished ones have each status"),
  providers: z.array(providerSchema),
  workers: z
    .array(
      z.object({
        id: z.string(),
        role: z
          .enum(["all", "api", "worker"])
          .describe("`api`: takes requests. `worker`: makes images. `all`: both"),
        version: z.string(),
        providers: z.array(z.string()).describe("with which it makes images"),
        paused: z.boolean(),
      }),
    )
    .describe("the processes that share the work; none where one process is alone"),
  problems: z
    .array(
      z.object({
        at: z.number().describe("Unix time in seconds, with milliseconds"),
        level: z.string().describe("`error` or `warn`"),
        text: z.string(),
      }),
    )
    .describe("the last warnings and errors of this process, the newest first"),
  requests: z
    .array(
      z.object({
        at: z.number().describe("Unix time in seconds, with milliseconds"),
        method: z.string(),
        path: z.string(),
        status: z.int(),
        duration_ms: z.int(),
        key: z.string().nullable().describe("the first characters of the key"),
      }),
    )
    .describe("the last requests of all keys, the newest first, without those of the console itself"),
});
export type OverviewObject = z.infer<typeof overviewSchema>;

/** The schemas of the bodies, by their names in the OpenAPI document. */
export const consoleSchemas = {
  Account: accountSchema,
  UsageList: listOf(usageSchema),
  LedgerList: listOf(ledgerEntrySchema),
  SignInCode: signInCodeSchema,
  Session: sessionSchema,
  Ticket: ticketSchema,
  ServiceOverview: overviewSchema,
  ServiceProviderList: listOf(providerSchema),
};

/** A body of the console, by its name in the OpenAPI document. */
export type ConsoleBody<Name extends keyof typeof consoleSchemas> = z.infer<(typeof consoleSchemas)[Name]>;
