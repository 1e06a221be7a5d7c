import type { ProviderObject } from "../../../contract/console-api.ts";
import { reasonText, saidLines } from "../../../contract/waiting.ts";
import { ScrollingTable } from "../../parts/scrolling-table.tsx";
import { StatusBadge } from "../../parts/status-badge.tsx";
import { ago, costOf, count, until } from "../../parts/words.ts";

/** The providers of the service, and how they are. */
export function Providers({ providers }: { providers: readonly ProviderObject[] }) {
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

function Row({ provider }: { provider: ProviderObject }) {
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

type TroubleFacts = Pick<ProviderObject, "reason" | "failed_requests" | "until" | "said">;

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
