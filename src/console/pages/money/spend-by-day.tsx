import type { UsageObject } from "../../../contract/console-api/account.ts";
import { count, usd } from "../../parts/words.ts";

const DAYS = 30;
const DAY_MS = 86_400_000;

/** A bar for each of the last 30 days, and the sums of the models. */
export function SpendByDay({ usage }: { usage: readonly UsageObject[] }) {
  const today = Date.now();
  const days = Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(today - (DAYS - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { day, ...sumOf(usage.filter((each) => each.day === day)) };
  });
  const most = Math.max(...days.map(({ cost }) => cost));
  const models = [...new Set(usage.map(({ model }) => model))];
  const all = sumOf(usage);
  return (
    <>
      <p>
        <b className="large-sum">{usd(all.cost)}</b>{" "}
        <span className="quiet">for {count(all.images)} images</span>
      </p>
      <ul className="bars" aria-label="Spent by day">
        {days.map(({ day, cost, images }) => (
          <li key={day} className="bar-slot" title={`${day}: ${usd(cost)}, ${count(images)} images`}>
            <span className="bar" style={{ height: `${most === 0 ? 0 : (cost / most) * 100}%` }} />
            <span className="unseen">
              {day}: {usd(cost)}, {images} images
            </span>
          </li>
        ))}
      </ul>
      <div className="bars-ends quiet" aria-hidden="true">
        <span>{days[0]?.day}</span>
        <span>today</span>
      </div>
      {models.length > 0 && (
        <table className="table">
          <thead>
            <tr>
              <th>model</th>
              <th className="number">images</th>
              <th className="number">cost</th>
            </tr>
          </thead>
          <tbody>
            {models.map((model) => {
              const sum = sumOf(usage.filter((each) => each.model === model));
              return (
                <tr key={model}>
                  <td>{model}</td>
                  <td className="number">{count(sum.images)}</td>
                  <td className="number">{usd(sum.cost)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </>
  );
}

function sumOf(usage: readonly UsageObject[]): { cost: number; images: number } {
  return {
    cost: usage.reduce((sum, each) => sum + each.cost, 0),
    images: usage.reduce((sum, each) => sum + each.image_count, 0),
  };
}
