import type { BatchObject } from "../../contract/batch-api.ts";
import type { AccountObject } from "../../contract/console-api.ts";
import { isTerminal } from "../../contract/statuses.ts";
import { waitingText } from "../../contract/waiting.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { costText, formatUsd, numberToMicros } from "../../kernel/money.ts";

/** `$6.70`: an amount of the API, in US dollars. */
export function usd(amount: number, as?: "exact" | "sum" | "limit"): string {
  return formatUsd(numberToMicros(amount), as);
}

/** What images cost: an amount of the API, or that they are drawn, free of charge. */
export function costOf(amount: number, isPlay: boolean | undefined, as?: "exact" | "sum" | "limit"): string {
  return costText({ micros: numberToMicros(amount), isPlay: isPlay === true }, as);
}

/** Whether an account has nothing but play money, which is never shown like dollars. */
export function isPlayOnly({ play_money, real_money }: AccountObject): boolean {
  return play_money && real_money === null;
}

/**
 * The money that an account can spend, real money if it has some. Null for play money, and for the key of this machine when
 * its person pays by consent: each consent brings what its images may cost.
 */
export function balanceOf(account: AccountObject): number | null {
  if (isPlayOnly(account)) return null;
  const { balance } = account.real_money ?? account;
  return account.owner && balance === 0 ? null : balance;
}

/** `3 min ago`: a time of the API (Unix seconds), seen from now. */
export function ago(seconds: number): string {
  const ms = Date.now() - seconds * 1000;
  return ms < 5000 ? "just now" : `${formatDuration(ms)} ago`;
}

/** `in 3 min`: a time that is still to come. */
export function until(seconds: number): string {
  return `in ${formatDuration(seconds * 1000 - Date.now())}`;
}

/** The local date and time, as the person's system writes them. */
export function localTime(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** `processing_results` → `processing results`: a status as people read it. */
export function statusWord(status: string): string {
  return status.replaceAll("_", " ");
}

/** `1,200`: a count with its thousands apart. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Why a batch waits: `waiting for google: takes no more requests for now (HTTP 429); next try at 14:32:10`. */
export function waitingWords({ code, message, until }: NonNullable<BatchObject["waiting"]>): string {
  return waitingText({ code, message, untilMs: until === null ? null : until * 1000 });
}

/** What is shown of one or more batches as a whole. */
export type WholeBatch = Pick<
  BatchObject,
  | "status"
  | "item_count"
  | "success_count"
  | "fail_count"
  | "pending_count"
  | "actual_cost"
  | "estimated_cost"
  | "hold_amount"
  | "play_money"
>;

/** Returns batches as one, each with its retries: an image that was made again counts once, and all that was paid counts. */
export function asOne(batches: readonly BatchObject[]): WholeBatch {
  const members = batches.flatMap((batch) => [batch, ...(batch.retries ?? [])]);
  const sumOf = (numbers: readonly number[]) => numbers.reduce((sum, each) => sum + each, 0);
  const item_count = sumOf(batches.map((batch) => batch.item_count));
  const success_count = Math.min(item_count, sumOf(members.map((each) => each.success_count)));
  const pending_count = Math.min(
    item_count - success_count,
    sumOf(members.map((each) => each.pending_count)),
  );
  const statuses = members.map(({ status }) => status);
  const costs = members.map(({ actual_cost }) => actual_cost);
  return {
    status:
      statuses.findLast((status) => !isTerminal(status)) ??
      statuses.find((status) => status === "completed") ??
      statuses.findLast((status) => status !== "output_deleted") ??
      "output_deleted",
    item_count,
    success_count,
    pending_count,
    fail_count: item_count - success_count - pending_count,
    actual_cost: costs.includes(null) ? null : sumOf(costs.map((cost) => cost ?? 0)),
    estimated_cost: sumOf(members.map((each) => each.actual_cost ?? each.estimated_cost)),
    // What an ended one has held is paid or given back.
    hold_amount: sumOf(members.map((each) => (each.actual_cost === null ? each.hold_amount : 0))),
    play_money: batches.every(({ play_money }) => play_money),
  };
}

/** `12 of 20, 1 failed`. */
export function Counts({ batch }: { batch: WholeBatch }) {
  const { item_count, success_count, fail_count } = batch;
  return (
    <span className="counts">
      {count(success_count)} <span className="of">of {count(item_count)}</span>
      {fail_count > 0 && <span className="fails"> · {count(fail_count)} failed</span>}
    </span>
  );
}

/** How many of `total` things are done. `parts`: their numbers, by the CSS class that colours each. `text`: the same in words. */
export function Progress(props: {
  label: string;
  total: number;
  parts: Readonly<Record<string, number>>;
  text?: string;
}) {
  const { label, total, parts, text } = props;
  const share = (part: number) => `${total === 0 ? 0 : (part / total) * 100}%`;
  return (
    <div
      className="progress"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total}
      aria-valuenow={Object.values(parts).reduce((sum, part) => sum + part, 0)}
      aria-valuetext={text}
    >
      {Object.entries(parts).map(([name, part]) => (
        <span key={name} className={name} style={{ width: share(part) }} />
      ))}
    </div>
  );
}

/** How far the items of a batch are: made, failed, and the rest. */
export function ProgressBar({ batch }: { batch: WholeBatch }) {
  const { item_count: total, success_count: made, fail_count: failed } = batch;
  const text = `${made} made, ${failed} failed, of ${total}`;
  return <Progress label="images made" total={total} parts={{ made, failed }} text={text} />;
}

const TONES: Record<string, string> = {
  completed: "good",
  success: "good",
  ok: "good",
  failed: "bad",
  disabled: "bad",
  cancelled: "quiet",
  output_deleted: "quiet",
  cooling: "warn",
};

/** The status of a batch, an item or a provider. */
export function StatusBadge({ status }: { status: string }) {
  return <span className={`badge ${TONES[status] ?? "busy"}`}>{statusWord(status)}</span>;
}

/** Numbers that are read at a glance, each with what it counts. */
export function Sums({ rows }: { rows: readonly (readonly [label: string, value: string])[] }) {
  return (
    <dl className="sums">
      {rows.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
