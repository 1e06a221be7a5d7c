import { type RawBuilder, sql } from "kysely";
import { UNFINISHED_BATCH_STATUSES } from "../../contract/statuses.ts";
import type { Repositories } from "../../domain/ports/stores.ts";
import { type SqlSession, written } from "../dialects/sql-session.ts";

type Window = Parameters<Repositories["audit"]["batches"]>[1];

/**
 * A condition in SQL that must be true for every row, and the problem to report for a row that breaks it. A comparison with
 * null is not true.
 */
type Rule<Row> = [isRight: string, problem: (row: Row) => string];

/** The sums of the ledger entries of a batch or a real-time request, and what is still held for it. */
interface Moved {
  id: string;
  held: number;
  captured: number;
  released: number;
  granted: number;
  takenBack: number;
  open: number;
}

/** Held money stays open until it is captured or released. If it was granted, the released part is taken back. */
const HOLD_RULES: readonly Rule<Moved>[] = [
  [
    "held = captured + released + open",
    ({ held, captured, released, open }) =>
      `hold ${held} is not capture ${captured} + release ${released} + open ${open}`,
  ],
  [
    "granted = 0 or granted = held",
    ({ granted, held }) => `granted ${granted}, should be ${held} or nothing`,
  ],
  [
    "taken_back = case when granted = 0 then 0 else released end",
    ({ takenBack, granted, released }) =>
      `taken back ${takenBack}, should be ${granted === 0 ? 0 : released}`,
  ],
];

interface AccountSums {
  id: string;
  balance: number;
  held: number;
  movedBalance: number;
  movedHeld: number;
  open: number;
}

const should = (what: string, is: number, other: number) =>
  `${what} is ${is}, should be ${other} (micro-dollars)`;

const ACCOUNT_RULES: readonly Rule<AccountSums>[] = [
  ["balance = moved_balance", (row) => should("balance", row.balance, row.movedBalance)],
  ["held = moved_held", (row) => should("held amount", row.held, row.movedHeld)],
  ["moved_held = open", (row) => should("held amount against unfinished work", row.movedHeld, row.open)],
  ["balance >= 0", () => "the balance is negative"],
];

interface RequestSums extends Moved {
  charged: number;
  used: number;
}

/** The captured amount is that of the usage records. After a release in full, it was charged instead. */
const REQUEST_RULES: readonly Rule<RequestSums>[] = [
  ...HOLD_RULES,
  [
    "captured + charged = used",
    ({ captured, charged, used }) =>
      `captured ${captured}${charged === 0 ? "" : ` and charged ${charged}`}, its usage records say ${used}`,
  ],
  [
    "charged = 0 or released = held",
    ({ charged, released, held }) => `charged ${charged}, and released ${released} of ${held}`,
  ],
  ["open_holds = 0 or images = 0", () => "has images and its hold is open"],
];

interface BatchSums extends Moved {
  status: string;
  batchHold: number;
  estimated: number;
  actual: number | null;
  itemCount: number;
  items: number;
  pending: number;
  itemsHold: number;
  itemsEstimate: number;
  itemsCost: number;
}

const make = (what: string, is: number | null, sum: number) => `its ${what} is ${is}, its items make ${sum}`;

/** The amounts are only compared with the sums over the items when all items are there. */
const BATCH_RULES: readonly Rule<BatchSums>[] = [
  ["held = batch_hold", ({ held, batchHold }) => `held ${held}, should be ${batchHold}`],
  ...HOLD_RULES,
  [
    "has_ended = 0 or captured = actual",
    ({ captured, actual }) => `captured ${captured}, the batch says ${actual}`,
  ],
  ["items = item_count", ({ items, itemCount }) => `${items} items, should be ${itemCount}`],
  ["items <> item_count or batch_hold = items_hold", (row) => make("hold", row.batchHold, row.itemsHold)],
  [
    "items <> item_count or estimated = items_estimate",
    (row) => make("estimate", row.estimated, row.itemsEstimate),
  ],
  [
    "items <> item_count or has_ended = 0 or actual = items_cost",
    (row) => make("cost", row.actual, row.itemsCost),
  ],
  ["success = success_count and failed = fail_count", () => "its counts of successes and failures are wrong"],
  ["pending = 0 or has_ended = 0", ({ pending }) => `ended with ${pending} pending items`],
  ["wrong_steps = 0 and last_status = status", ({ status }) => `its history does not lead to ${status}`],
];

/** The rules that must always hold, and aggregates over whole tables: a database of 100,000 batches is checked in one pass. */
export function auditRepository(session: SqlSession): Repositories["audit"] {
  const { build, all, first } = session;
  return {
    extent: async () => {
      const query = sql<{ accounts: number; batches: number; lastSeq: number }>`
        select (select count(*) from accounts) as accounts, count(*) as batches,
          coalesce(max(seq), 0) as last_seq from batches`;
      return (await first(written(session, query))) ?? { accounts: 0, batches: 0, lastSeq: 0 };
    },
    accounts: () => broken(session, ACCOUNTS, ACCOUNT_RULES),
    requests: () => broken(session, REQUESTS, REQUEST_RULES),
    batches: (steps, window) => broken(session, batchSums(steps, window), BATCH_RULES),
    lostOutputs: ({ afterSeq, toSeq }) => {
      const kept = build.selectFrom("batches").select("id").where("status", "!=", "output_deleted");
      const some = kept.where("seq", ">", afterSeq).where("seq", "<=", toSeq);
      const query = build
        .selectFrom("items")
        .leftJoin("outputs", "outputs.itemId", "items.id")
        .select(["items.batchId", "items.customId"])
        .select((eb) =>
          sql<number>`${eb.ref("items.imageCount")} - count(${eb.ref("outputs.itemId")})`.as("lost"),
        )
        .where("items.batchId", "in", some)
        .where("items.status", "=", "success")
        .where("items.imagesDeletedAtMs", "is", null)
        .groupBy(["items.id", "items.batchId", "items.customId", "items.imageCount"])
        .having((eb) => sql<boolean>`count(${eb.ref("outputs.itemId")}) < ${eb.ref("items.imageCount")}`)
        .orderBy("items.id");
      return all(query);
    },
    keptOutputs: ({ afterSeq, toSeq }) => {
      const kept = build.selectFrom("batches").select("id").where("status", "!=", "output_deleted");
      const some = kept.where("seq", ">", afterSeq).where("seq", "<=", toSeq);
      return all(build.selectFrom("outputs").selectAll().where("batchId", "in", some));
    },
  };
}

/** Returns the rows that break a rule, in the order of their column `place`, with what is wrong with each. */
async function broken<Row extends { id: string }>(
  session: SqlSession,
  rows: RawBuilder<Row>,
  rules: readonly Rule<Row>[],
): Promise<{ id: string; problems: string[] }[]> {
  const numbers = rules.map(([isRight], i) =>
    sql.raw(`case when (${isRight}) is true then '' else ',${i}' end`),
  );
  const found = await session.all(
    written(
      session,
      sql<Row & { broken: string }>`select * from (select checked.*, ${sql.join(numbers, sql` || `)} as broken
        from (${rows}) checked) judged where broken <> '' order by place`,
    ),
  );
  return found.map((row) => {
    const numbersOf = row.broken.slice(1).split(",").map(Number);
    return { id: row.id, problems: numbersOf.flatMap((i) => rules[i]?.[1](row) ?? []) };
  });
}

const sumOf = (kind: string) => sql`sum(case when kind = ${sql.lit(kind)} then amount_micro_usd else 0 end)`;
const countOf = (column: string, value: string) =>
  sql`sum(case when ${sql.ref(column)} = ${sql.lit(value)} then 1 else 0 end)`;
const orZero = (column: string) => sql`coalesce(${sql.ref(column)}, 0)`;

const ACCOUNTS = sql<AccountSums>`
  select a.name as id, a.created_at_ms as place, a.balance_micro_usd as balance, a.held_micro_usd as held,
    ${orZero("e.balance")} as moved_balance, ${orZero("e.held")} as moved_held,
    ${orZero("b.open")} + ${orZero("h.open")} as open
  from accounts a
    left join (select account_id, sum(balance_change_micro_usd) as balance, sum(held_change_micro_usd) as held
      from ledger_entries group by account_id) e on e.account_id = a.id
    left join (select account_id, sum(hold_micro_usd) as open
      from batches where settled_at_ms is null group by account_id) b on b.account_id = a.id
    left join (select account_id, sum(amount_micro_usd) as open
      from realtime_holds group by account_id) h on h.account_id = a.id`;

/** The `request_id` of an entry for a real-time request is the kind of the entry, a colon, and the id of the request. */
const REQUESTS = sql<RequestSums>`
  select id, id as place, ${sumOf("hold")} as held, ${sumOf("capture")} as captured, ${sumOf("release")} as released,
    ${sumOf("grant")} as granted, ${sumOf("take_back")} as taken_back, ${sumOf("charge")} as charged,
    ${sumOf("open")} as open, ${countOf("kind", "open")} as open_holds,
    ${sumOf("image")} as used, ${countOf("kind", "image")} as images
  from (
    select account_id, substr(request_id, length(kind) + 2) as id, kind, amount_micro_usd
      from ledger_entries where batch_id is null and kind <> 'top_up'
    union all select account_id, id, 'open' as kind, amount_micro_usd from realtime_holds
    union all select account_id, realtime_id as id, 'image' as kind, amount_micro_usd from usage_records
  ) moved group by account_id, id`;

/** Selects the batches of a window, each with the sums of its ledger entries, items and events. */
function batchSums(steps: readonly string[], window: Window) {
  const inWindow = sql`seq > ${window.afterSeq} and seq <= ${window.toSeq}`;
  const some = sql`batch_id in (select id from batches where ${inWindow})`;
  const hasEnded = sql`b.status not in (${sql.join(UNFINISHED_BATCH_STATUSES.map((each) => sql.lit(each)))})`;
  return sql<BatchSums>`
    with money as (
      select batch_id, account_id, ${sumOf("hold")} as held, ${sumOf("capture")} as captured,
        ${sumOf("release")} as released, ${sumOf("grant")} as granted, ${sumOf("take_back")} as taken_back
      from ledger_entries where ${some} group by batch_id, account_id
    ), made as (
      select batch_id, count(*) as total, ${countOf("status", "pending")} as pending,
        ${countOf("status", "success")} as success, ${countOf("status", "failed")} as failed,
        sum(price_micro_usd) as price, sum(hold_micro_usd) as hold,
        sum(case when status = 'success' then price_micro_usd else 0 end) as earned
      from items where ${some} group by batch_id
    ), steps as (
      select batch_id, "from", "to", lag("to") over (partition by batch_id order by seq) as before,
        lead("to") over (partition by batch_id order by seq) as after
      from batch_events where ${some}
    ), history as (
      select batch_id, max(case when after is null then "to" end) as last,
        sum(case when "from" is null and before is null and "to" = 'queued' then 0
          when "from" = before and "from" || '>' || "to" in (${sql.join(steps.map((each) => sql.lit(each)))}) then 0
          else 1 end) as wrong
      from steps group by batch_id
    )
    select b.id, b.seq as place, b.status, b.hold_micro_usd as batch_hold, b.estimated_micro_usd as estimated,
      b.actual_micro_usd as actual, b.item_count, b.success_count, b.fail_count,
      case when ${hasEnded} then 1 else 0 end as has_ended,
      case when ${hasEnded} then 0 else b.hold_micro_usd end as open,
      ${orZero("m.held")} as held, ${orZero("m.captured")} as captured, ${orZero("m.released")} as released,
      ${orZero("m.granted")} as granted, ${orZero("m.taken_back")} as taken_back,
      ${orZero("i.total")} as items, ${orZero("i.pending")} as pending, ${orZero("i.success")} as success,
      ${orZero("i.failed")} as failed,
      ${orZero("i.hold")} as items_hold, ${orZero("i.price")} as items_estimate, ${orZero("i.earned")} as items_cost,
      h.wrong as wrong_steps, h.last as last_status
    from (select * from batches where ${inWindow}) b
      left join money m on m.batch_id = b.id and m.account_id = b.account_id
      left join made i on i.batch_id = b.id
      left join history h on h.batch_id = b.id`;
}
