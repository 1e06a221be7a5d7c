import type { ProviderObject } from "../../../contract/console-api/provider.ts";
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
  const { name, type, state, until: end, reason, models, last_hour, total, last_success_at } = provider;
  return (
    <tr>
      <td>
        <b>{name}</b> <span className="quiet">{type}</span>
      </td>
      <td>
        <StatusBadge status={state} />
        {reason !== null && (
          <div className="quiet small-text">
            {reason}
            {end !== null && `, ${until(end)}`}
          </div>
        )}
        {models.map((trouble) => (
          <div key={trouble.model} className="quiet small-text">
            {trouble.model}: {trouble.reason}
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
