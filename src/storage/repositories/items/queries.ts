import { sql } from "kysely";
import type { ItemStatus } from "../../../contract/statuses.ts";
import type { ItemRepository, ItemTotal } from "../../../domain/ports/item-repository.ts";
import { kept, type Values } from "../../dialects/kept-query.ts";
import type { SqlSession } from "../../dialects/sql-session.ts";

/** The columns of a `ListedItem`. */
export const LISTED = [
  "id",
  "position",
  "source_index",
  "custom_id",
  "prompt",
  "status",
  "mime_type",
  "image_count",
  "error",
  "model_version",
  "provider",
  "maybe_paid",
  "seed",
  "notes",
  "usage",
  "price_micro_usd",
] as const;

export const NO_LEASE = { lease_token: null, lease_worker: null };

// The queries of items that run for each image or request.

export interface Lease {
  id: number;
  leaseToken: string;
}

/** Only who holds the lease may change a pending item. */
export const held = (build: SqlSession["build"], { id, leaseToken }: Values<Lease>) =>
  build
    .updateTable("items")
    .where("id", "=", id)
    .where("status", "=", "pending")
    .where("lease_token", "=", leaseToken);

type Returned = Parameters<ItemRepository["giveBack"]>[2];

export const GIVE_BACK = kept((build, item: Values<Lease & Returned>) =>
  held(build, item).set({
    not_before_ms: item.notBeforeMs,
    attempts: item.attempts,
    failed_at: item.failedAt,
    maybe_paid: item.maybePaid,
    ...NO_LEASE,
  }),
);

type Page = Values<{ batchId: string; after: number; limit: number; offset: number }>;
type PageOfStatus = Page & Values<{ status: ItemStatus }>;

const pageOf = (build: SqlSession["build"], page: Page) =>
  build
    .selectFrom("items")
    .where("batch_id", "=", page.batchId)
    .where("position", ">", page.after)
    .orderBy("position")
    .limit(page.limit)
    .offset(page.offset);

export const PAGE = kept((build, page: Page) => pageOf(build, page).selectAll());

export const PAGE_OF_STATUS = kept((build, page: PageOfStatus) =>
  pageOf(build, page).where("status", "=", page.status).selectAll(),
);

export const LISTED_PAGE = kept((build, page: Page) => pageOf(build, page).select([...LISTED]));

export const LISTED_PAGE_OF_STATUS = kept((build, page: PageOfStatus) =>
  pageOf(build, page)
    .where("status", "=", page.status)
    .select([...LISTED]),
);

export const COUNTS = kept((build, { batchId }: Values<{ batchId: string }>) =>
  build
    .selectFrom("items")
    .select(["status", (eb) => eb.fn.countAll<number>().as("count")])
    .where("batch_id", "=", batchId)
    .groupBy("status"),
);

export const NEXT_DUE = kept((build, { batchId }: Values<{ batchId: string }>) =>
  build
    .selectFrom("items")
    .select((eb) => eb.fn.min<number | null>("not_before_ms").as("due"))
    .where("batch_id", "=", batchId)
    .where("status", "=", "pending")
    .where("lease_token", "is", null),
);

/** See `ItemRepository.totals`. */
export async function totalsOf(
  { build, all }: SqlSession,
  batchIds: readonly string[],
): Promise<ItemTotal[]> {
  const query = build
    .selectFrom("items")
    .select((eb) => [
      "batch_id as batchId",
      "status",
      eb.fn.countAll<number>().as("count"),
      sql<number>`coalesce(sum(price_micro_usd), 0)`.as("priceMicroUsd"),
      eb.fn.count<number>("price_micro_usd").as("priced"),
      sql<number>`coalesce(sum(hold_micro_usd), 0)`.as("holdMicroUsd"),
      eb.fn.count<number>("hold_micro_usd").as("held"),
    ])
    .where("batch_id", "in", [...batchIds])
    .groupBy(["batch_id", "status"])
    .orderBy("batch_id")
    .orderBy("status");
  return (await all(query)).map((row) => ({ ...row, status: row.status as ItemStatus }));
}
