import { useEffect } from "react";
import type { OverviewObject } from "../../contract/console-api.ts";
import { PATHS } from "../../contract/routes.ts";
import { reasonText, saidLines } from "../../contract/waiting.ts";
import { formatDuration } from "../../kernel/durations.ts";
import { formatSize } from "../../kernel/text.ts";
import { fetchJson } from "../api/request.ts";
import { ScrollingTable } from "../parts/keys.tsx";
import { ErrorNote } from "../parts/notes.tsx";
import { ago, costOf, count, StatusBadge, Sums, statusWord, until } from "../parts/status.tsx";
import { useData } from "../parts/use-data.ts";

type Provider = OverviewObject["providers"][number];

/** The providers of the service, and how they are. */
function Providers({ providers }: { providers: OverviewObject["providers"] }) {
  return (
    <section className="block">
      <h2>Providers</h2>
      <ScrollingTable label="Providers">
        <thead>
          <tr>
            <th>name</th>
            <th>state</th>
            <th className="number">images, last hour</th>
            <th className="number">errors, last hour</th>
            <th className="number">images</th>
            <th className="number">billed</th>
            <th>last image</th>
          </tr>
        </thead>
        <tbody>
          {providers.map((provider) => (
            <Row key={provider.name} provider={provider} />
          ))}
        </tbody>
      </ScrollingTable>
    </section>
  );
}

function Row({ provider }: { provider: Provider }) {
  const { name, type, state, models, last_hour, total, last_success_at } = provider;
  return (
    <tr>
      <td>
        <b>{name}</b> <span className="quiet">{type}</span>
      </td>
      <td>
        {(state !== "ok" || models.every((trouble) => trouble.state === "ok")) && (
          <StatusBadge status={state} />
        )}
        <Trouble provider={name} trouble={provider} />
        {models.map((trouble) => (
          <div key={trouble.model}>
            <b className="small-text">{trouble.model}</b>{" "}
            {trouble.state !== state && <StatusBadge status={trouble.state} />}
            <Trouble provider={name} trouble={trouble} />
          </div>
        ))}
      </td>
      <td className="number">{count(last_hour.images)}</td>
      <td className="number">{count(last_hour.errors)}</td>
      <td className="number">{count(total.images)}</td>
      <td className="number">{costOf(total.billed, provider.play_money)}</td>
      <td className="quiet">{last_success_at === null ? "none yet" : ago(last_success_at)}</td>
    </tr>
  );
}

type TroubleFacts = Pick<Provider, "reason" | "failed_requests" | "until" | "said">;

/** Why a provider is in its state, how often it failed, when it is asked again, and what the upstream said. */
function Trouble({ provider, trouble }: { provider: string; trouble: TroubleFacts }) {
  const { reason, failed_requests, until: end, said } = trouble;
  if (reason === null) return null;
  return (
    <div className="quiet small-text">
      {reasonText(provider, reason, failed_requests)}
      {end !== null && `; next try ${until(end)}`}
      {saidLines(said).map((line) => (
        <div key={line}>{line}</div>
      ))}
    </div>
  );
}

const READ_EVERY_MS = 3000;

/** The whole service: for the person at its machine. */
export function ServicePage() {
  const overview = useData("overview", (signal) =>
    fetchJson<OverviewObject>(PATHS.consoleService, { signal }),
  );
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
          <Providers providers={overview.value.providers} />
          <Workers overview={overview.value} />
          <Problems problems={overview.value.problems} />
          <Numbers overview={overview.value} />
          <Requests requests={overview.value.requests} />
        </>
      )}
    </>
  );
}

/** The processes that make images, and how much they do. */
function Workers({ overview }: { overview: OverviewObject }) {
  const { workers, queue } = overview;
  const rows: [string, string][] = [
    ["being made", `${count(queue.running)} of ${count(queue.concurrency)}`],
    ["waiting", count(queue.waiting) + (queue.paused ? ", paused" : "")],
  ];
  return (
    <section className="block">
      <h2>Workers</h2>
      <Sums rows={rows} />
      {workers.length > 0 && (
        <ScrollingTable label="Workers">
          <thead>
            <tr>
              <th>process</th>
              <th>role</th>
              <th>version</th>
              <th>providers</th>
            </tr>
          </thead>
          <tbody>
            {workers.map(({ id, role, version, providers, paused }) => (
              <tr key={id}>
                <td>
                  <code>{id}</code>
                </td>
                <td>
                  {role}
                  {paused && ", paused"}
                </td>
                <td>{version}</td>
                <td>{providers.join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </ScrollingTable>
      )}
    </section>
  );
}

/** The last warnings and errors of the log. */
function Problems({ problems }: { problems: OverviewObject["problems"] }) {
  return (
    <section className="block">
      <h2>Errors</h2>
      {problems.length === 0 && <p className="quiet">none since the service started</p>}
      {problems.length > 0 && (
        <ScrollingTable label="Errors">
          <tbody>
            {problems.map(({ at, level, text }, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: lines of a log have no names.
              <tr key={`${at} ${index}`}>
                <td className="short">{new Date(at * 1000).toLocaleTimeString()}</td>
                <td className={level === "error" ? "fails" : ""}>{level}</td>
                <td dir="auto">{text}</td>
              </tr>
            ))}
          </tbody>
        </ScrollingTable>
      )}
    </section>
  );
}

/** The disk and the time since the start. */
function Numbers({ overview }: { overview: OverviewObject }) {
  const { disk_free_bytes, started_at, batches, data_directory } = overview;
  const rows: [string, string][] = [
    ["disk free", disk_free_bytes === null ? "unknown" : formatSize(disk_free_bytes)],
    ["running for", formatDuration(Date.now() - started_at * 1000)],
  ];
  return (
    <section className="block">
      <h2>Machine</h2>
      <Sums rows={rows} />
      <p className="quiet">
        {Object.entries(batches)
          .map(([status, number]) => `${count(number)} ${statusWord(status)}`)
          .join(" · ") || "all batches have ended"}
        {" · data in "}
        <code>{data_directory}</code>
      </p>
    </section>
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
