import type { UsageObject } from "../../../contract/console-api.ts";
import { FREE_DRAWINGS } from "../../../kernel/money.ts";
import { counted } from "../../../kernel/text.ts";
import { costOf, count, usd } from "../../parts/words.ts";

const DAYS = 30;
const DAY_MS = 86_400_000;

/** A bar for each of the last 30 days, and the sums of the models. `isPlay`: nothing costs money, and the bars show images. */
export function SpendByDay({ usage, isPlay }: { usage: readonly UsageObject[]; isPlay: boolean }) {
  const today = Date.now();
  const days = Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(today - (DAYS - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { day, ...sumOf(usage.filter((each) => each.day === day)) };
  });
  const heightOf = ({ cost, images }: Sum) => (isPlay ? images : cost);
  const most = Math.max(...days.map(heightOf));
  const models = [...new Set(usage.map(({ model }) => model))];
  const all = sumOf(usage);
  return (
    <>
      <p>
        <b className="large-sum">{isPlay ? counted(all.images, "image") : usd(all.cost, "sum")}</b>{" "}
        <span className="quiet">{isPlay ? FREE_DRAWINGS : `for ${counted(all.images, "image")}`}</span>
      </p>
      <ul className="bars" aria-label={isPlay ? "Made by day" : "Spent by day"}>
        {days.map(({ day, ...sum }) => {
          const words = `${day}: ${isPlay ? "" : `${usd(sum.cost, "sum")}, `}${counted(sum.images, "image")}`;
          return (
            <li key={day} className="bar-slot" title={words}>
              <span className="bar" style={{ height: `${most === 0 ? 0 : (heightOf(sum) / most) * 100}%` }} />
              <span className="unseen">{words}</span>
            </li>
          );
        })}
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

interface Sum {
  /** Without play money. */
  cost: number;
  images: number;
}

function sumOf(usage: readonly UsageObject[]): Sum {
  return {
    cost: usage.reduce((sum, each) => sum + (each.play_money ? 0 : each.cost), 0),
    images: usage.reduce((sum, each) => sum + each.image_count, 0),
  };
}
