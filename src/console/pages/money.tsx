import { useState } from "react";
import type { ListEnvelope } from "../../contract/batch-api.ts";
import type { LedgerEntryObject, UsageObject } from "../../contract/console-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { groupBy } from "../../kernel/json.ts";
import { FREE_DRAWINGS } from "../../kernel/money.ts";
import { getLedger } from "../api/batches.ts";
import { fetchJson, signOut } from "../api/request.ts";
import { ScrollingTable } from "../parts/keys.tsx";
import { ErrorNote, Icon } from "../parts/notes.tsx";
import { hrefOf } from "../parts/route.ts";
import { balanceOf, costOf, count, isPlayOnly, localTime, Sums, statusWord, usd } from "../parts/status.tsx";
import { useAccount, useData } from "../parts/use-data.ts";

const DAYS = 30;
const DAY_MS = 86_400_000;

const images = (number: number) => `${count(number)} ${number === 1 ? "image" : "images"}`;

/** A bar for each of the last 30 days, and the sums of the models. `isPlay`: nothing costs money, and the bars show images. */
function SpendByDay({ usage, isPlay }: { usage: readonly UsageObject[]; isPlay: boolean }) {
  const today = Date.now();
  const days = Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(today - (DAYS - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { day, ...sumOf(usage.filter((each) => each.day === day)) };
  });
  const heightOf = ({ cost, images }: DaySum) => (isPlay ? images : cost);
  const top = axisTop(Math.max(...days.map(heightOf)), isPlay ? 2 : 0.01);
  const models = [...new Set(usage.map(({ model }) => model))];
  const all = sumOf(usage);
  const wordsOf = (height: number) => (isPlay ? count(height) : usd(height, "sum"));
  return (
    <>
      <p>
        <b className="large-sum">{isPlay ? images(all.images) : usd(all.cost, "sum")}</b>{" "}
        <span className="quiet">{isPlay ? FREE_DRAWINGS : `for ${images(all.images)}`}</span>
      </p>
      <div className="chart">
        <div className="axis quiet" aria-hidden="true">
          {[top, top / 2, 0].map((height) => (
            <span key={height}>{wordsOf(height)}</span>
          ))}
        </div>
        <ul className="bars" aria-label={isPlay ? "Made by day" : "Spent by day"}>
          {days.map(({ day, ...sum }) => {
            const words = `${day}: ${isPlay ? "" : `${usd(sum.cost, "sum")}, `}${images(sum.images)}`;
            return (
              <li key={day} className="bar-slot" title={words}>
                <span className="bar" style={{ height: `${(heightOf(sum) / top) * 100}%` }} />
                <span className="unseen">{words}</span>
              </li>
            );
          })}
        </ul>
        <div className="bars-ends quiet" aria-hidden="true">
          {[0, 10, 20].map((index) => (
            <span key={index}>{days[index]?.day.slice(5)}</span>
          ))}
          <span>today</span>
        </div>
      </div>
      {models.length > 0 && (
        <table className="table">
          <thead>
            <tr>
              <th>model</th>
              <th className="number">images</th>
              {!isPlay && <th className="number">cost</th>}
            </tr>
          </thead>
          <tbody>
            {models.map((model) => {
              const own = usage.filter((each) => each.model === model);
              const sum = sumOf(own);
              const isDrawn = own.every(({ play_money }) => play_money);
              return (
                <tr key={model}>
                  <td>{model}</td>
                  <td className="number">{count(sum.images)}</td>
                  {!isPlay && <td className="number">{costOf(sum.cost, isDrawn)}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </>
  );
}

/** The end of the axis: 1, 2 or 5 times a power of ten that is not below the highest bar. */
function axisTop(most: number, least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((top) => top >= Math.max(most, least)) ?? most;
}

interface DaySum {
  /** Without play money. */
  cost: number;
  images: number;
}

function sumOf(usage: readonly UsageObject[]): DaySum {
  return {
    cost: usage.reduce((sum, each) => sum + (each.play_money ? 0 : each.cost), 0),
    images: usage.reduce((sum, each) => sum + each.image_count, 0),
  };
}

/** The movements of real money, the newest first, those of a batch as one. `hasPlay`: drawings are paid with play money, which is not shown. */
function Ledger({ hasPlay, hasBalance }: { hasPlay: boolean; hasBalance: boolean }) {
  const [pages, setPages] = useState(1);
  const ledger = useData(
    "ledger",
    (signal) => getLedger(pages, signal),
    (change) => change.kind === "account",
    pages,
  );
  const { entries: all, hasMore } = ledger.value ?? { entries: [], hasMore: false };
  const entries = all.filter(({ play_money }) => !play_money);
  const groups = groupBy(entries, (entry) => entry.batch_id ?? all.indexOf(entry) - all.length);
  return (
    <section className="block">
      <h2>Ledger</h2>
      {hasPlay && <p className="quiet">Drawings are free of charge and not listed.</p>}
      <ErrorNote error={ledger.error} />
      {ledger.value && entries.length === 0 && <p className="quiet">No money has moved yet.</p>}
      {entries.length > 0 && (
        <ScrollingTable label="Ledger">
          <thead>
            <tr>
              <th>when</th>
              <th>what</th>
              <th className="number">change</th>
              <th className="number">held</th>
              {hasBalance && <th className="number">balance after</th>}
            </tr>
          </thead>
          {[...groups].map(([key, group]) => (
            <Movements key={key} entries={group} hasBalance={hasBalance} />
          ))}
        </ScrollingTable>
      )}
      {hasMore && (
        <button type="button" className="button more" onClick={() => setPages(pages + 1)}>
          Show more
        </button>
      )}
    </section>
  );
}

/** A row for what a batch has cost, and below it, when asked for, one for each of its movements. Newest first. */
function Movements({ entries, hasBalance }: { entries: readonly LedgerEntryObject[]; hasBalance: boolean }) {
  const [isOpen, setOpen] = useState(false);
  const [newest] = entries;
  if (!newest) return null;
  const { batch_id, batch_name } = newest;
  if (batch_id === null)
    return (
      <tbody>
        <Row entry={newest} hasBalance={hasBalance} />
      </tbody>
    );
  const sumOf = (amounts: readonly number[]) => amounts.reduce((sum, each) => sum + each, 0);
  const isPayment = ({ kind }: LedgerEntryObject) => kind === "capture" || kind === "charge";
  const paid = sumOf(entries.filter(isPayment).map(({ amount }) => amount));
  // The hold itself may be on a page that is not read yet.
  const held = Math.max(0, sumOf(entries.map(({ held_change }) => held_change)));
  return (
    <tbody>
      <tr>
        <td className="short">{localTime(newest.created_at)}</td>
        <td>
          <button
            type="button"
            className="disclosure"
            aria-expanded={isOpen}
            aria-label={`Movements of ${batch_name}`}
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name="right" />
          </button>
          <a href={hrefOf("batches", batch_id)} dir="auto">
            {batch_name}
          </a>
        </td>
        <td className="number">{changeOf(-paid)}</td>
        <td className="number">{changeOf(held)}</td>
        {hasBalance && <td className="number">{usd(newest.balance)}</td>}
      </tr>
      {isOpen &&
        entries.map((entry, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: entries have no names, and never change.
          <Row key={entries.length - index} entry={entry} hasBalance={hasBalance} />
        ))}
    </tbody>
  );
}

function Row({ entry, hasBalance }: { entry: LedgerEntryObject; hasBalance: boolean }) {
  const { created_at, kind, balance_change, held_change, balance, batch_id } = entry;
  return (
    <tr className={batch_id === null ? "" : "movement"}>
      <td className="short">{localTime(created_at)}</td>
      <td className="short">{statusWord(kind)}</td>
      <td className="number">{changeOf(balance_change)}</td>
      <td className="number">{changeOf(held_change)}</td>
      {hasBalance && <td className="number">{usd(balance)}</td>}
    </tr>
  );
}

function changeOf(amount: number): string {
  if (amount === 0) return "–";
  return amount > 0 ? `+${usd(amount)}` : usd(amount);
}

/** The money of the account, and where it went. */
export function MoneyPage() {
  const account = useAccount();
  const isPlay = account !== null && isPlayOnly(account);
  const balance = account && balanceOf(account);
  const held = (account?.real_money ?? account)?.held ?? 0;
  const usage = useData(
    "usage",
    async (signal) => (await fetchJson<ListEnvelope<UsageObject>>(PATHS.usage, { signal })).data,
    (change) => change.kind === "account",
  );
  return (
    <>
      <div className="page-head">
        <h1>Money</h1>
        <button type="button" className="button phone-only" onClick={signOut}>
          <Icon name="out" /> Sign out
        </button>
      </div>
      {!isPlay && (balance !== null || held > 0) && (
        <Sums
          rows={[
            ...(balance === null ? [] : [["balance", usd(balance)] as const]),
            ["held for what runs", usd(held)],
          ]}
        />
      )}
      <section className="block">
        <h2>{isPlay ? "Made in 30 days" : "Spent in 30 days"}</h2>
        <ErrorNote error={usage.error} />
        {usage.value && <SpendByDay usage={usage.value} isPlay={isPlay} />}
      </section>
      {account && !isPlay && <Ledger hasPlay={account.play_money} hasBalance={balance !== null} />}
    </>
  );
}
