import { useEffect } from "react";
import type { OverviewObject } from "../../../contract/console-api.ts";
import { formatDuration } from "../../../kernel/durations.ts";
import { formatSize } from "../../../kernel/text.ts";
import { getOverview } from "../../api/account.ts";
import { useData } from "../../hooks/use-data.ts";
import { ErrorNote } from "../../parts/notes.tsx";
import { ScrollingTable } from "../../parts/scrolling-table.tsx";
import { count, statusWord } from "../../parts/words.ts";
import { Providers } from "./providers.tsx";

const READ_EVERY_MS = 3000;

/** The whole service: for the person at its machine. */
export function ServicePage() {
  const overview = useData("overview", getOverview);
  const { reload } = overview;
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, READ_EVERY_MS);
    return () => clearInterval(timer);
  }, [reload]);
  return (
    <>
      <div className="page-head">
        <h1>Service</h1>
      </div>
      <ErrorNote error={overview.error} />
      {overview.value && (
        <>
          <Numbers overview={overview.value} />
          <Providers providers={overview.value.providers} />
          <Requests requests={overview.value.requests} />
        </>
      )}
    </>
  );
}

function Numbers({ overview }: { overview: OverviewObject }) {
  const { queue, disk_free_bytes, started_at, batches, data_directory } = overview;
  const rows: [string, string][] = [
    ["being made", `${count(queue.running)} of ${count(queue.concurrency)}`],
    ["waiting", count(queue.waiting) + (queue.paused ? ", paused" : "")],
    ["disk free", disk_free_bytes === null ? "unknown" : formatSize(disk_free_bytes)],
    ["runs for", formatDuration(Date.now() - started_at * 1000)],
  ];
  return (
    <>
      <dl className="sums">
        {rows.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <p className="quiet">
        {Object.entries(batches)
          .map(([status, number]) => `${count(number)} ${statusWord(status)}`)
          .join(" · ") || "no batches"}
        {" · data in "}
        <code>{data_directory}</code>
      </p>
    </>
  );
}

function Requests({ requests }: { requests: OverviewObject["requests"] }) {
  return (
    <section className="block">
      <h2>Last requests</h2>
      <ScrollingTable label="Last requests">
        <thead>
          <tr>
            <th>when</th>
            <th>request</th>
            <th className="number">status</th>
            <th className="number">took</th>
            <th>key</th>
          </tr>
        </thead>
        <tbody>
          {requests.map(({ at, method, path, status, duration_ms, key }, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: requests have no names.
            <tr key={`${at} ${index}`}>
              <td className="short">{new Date(at * 1000).toLocaleTimeString()}</td>
              <td>
                <code>
                  {method} {path}
                </code>
              </td>
              <td className={`number ${status >= 400 ? "fails" : ""}`}>{status}</td>
              <td className="number">{formatDuration(duration_ms)}</td>
              <td className="short">{key && <code>{key}…</code>}</td>
            </tr>
          ))}
        </tbody>
      </ScrollingTable>
    </section>
  );
}
