import { useState } from "react";
import type { LedgerEntryObject } from "../../../contract/console-api.ts";
import { getLedger } from "../../api/account.ts";
import { useData } from "../../hooks/use-data.ts";
import { hrefOf } from "../../hooks/use-route.ts";
import { ErrorNote } from "../../parts/notes.tsx";
import { ScrollingTable } from "../../parts/scrolling-table.tsx";
import { localTime, statusWord, usd } from "../../parts/words.ts";

const PAGE = 50;

/** The movements of real money, the newest first. `hasPlay`: drawings are paid with play money, which is not shown. */
export function Ledger({ hasPlay }: { hasPlay: boolean }) {
  const [pages, setPages] = useState(1);
  const ledger = useData(
    "ledger",
    (signal) => readPages(pages, signal),
    (change) => change.kind === "account",
    pages,
  );
  const { entries: all, hasMore } = ledger.value ?? { entries: [], hasMore: false };
  const entries = all.filter(({ play_money }) => !play_money);
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
              <th className="number">balance after</th>
              <th>batch</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: entries have no names, and never change.
              <Row key={entries.length - index} entry={entry} />
            ))}
          </tbody>
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

function Row({ entry }: { entry: LedgerEntryObject }) {
  const { created_at, kind, balance_change, held_change, balance, batch_id } = entry;
  return (
    <tr>
      <td className="short">{localTime(created_at)}</td>
      <td className="short">{statusWord(kind)}</td>
      <td className="number">{changeOf(balance_change)}</td>
      <td className="number">{changeOf(held_change)}</td>
      <td className="number">{usd(balance)}</td>
      <td>{batch_id && <a href={hrefOf("batches", batch_id)}>{batch_id.slice(0, 18)}…</a>}</td>
    </tr>
  );
}

function changeOf(amount: number): string {
  if (amount === 0) return "–";
  return amount > 0 ? `+${usd(amount)}` : usd(amount);
}

async function readPages(pages: number, signal: AbortSignal) {
  const entries: LedgerEntryObject[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < pages; page++) {
    const list = await getLedger(PAGE, signal, cursor);
    entries.push(...list.data);
    cursor = list.next_cursor ?? undefined;
    if (!list.has_more || cursor === undefined) return { entries, hasMore: false };
  }
  return { entries, hasMore: true };
}
