import { useRef } from "react";
import type { BatchObject } from "../../../contract/batch-api.ts";
import { isTerminal } from "../../../contract/statuses.ts";
import { FREE_DRAWINGS } from "../../../kernel/money.ts";
import { firstImages } from "../../api/batches.ts";
import { thumbnailPath } from "../../api/thumbnails.ts";
import { useData } from "../../hooks/use-data.ts";
import { hrefOf } from "../../hooks/use-route.ts";
import { useVisible } from "../../hooks/use-visible.ts";
import { Counts } from "../../parts/counts.tsx";
import { RemotePicture } from "../../parts/picture.tsx";
import { ProgressBar } from "../../parts/progress-bar.tsx";
import { StatusBadge } from "../../parts/status-badge.tsx";
import { ago, localTime, usd, waitingWords } from "../../parts/words.ts";

export function BatchRow({ batch }: { batch: BatchObject }) {
  const { id, task_name, status, model, created_at, waiting, parent_batch_id } = batch;
  const row = useRef<HTMLLIElement>(null);
  const isVisible = useVisible(row);
  return (
    <li ref={row}>
      <a className="batch-row" href={hrefOf("batches", id)}>
        <span className="strip">{isVisible && <Strip batch={batch} />}</span>
        <span className="batch-name">
          <b dir="auto">{task_name}</b>
          <span className="quiet">
            {parent_batch_id !== null && "retry · "}
            {waiting && !isTerminal(status) ? waitingWords(waiting) : model}
          </span>
        </span>
        <span className="batch-state">
          <StatusBadge status={status} />
          <Counts batch={batch} />
          <ProgressBar batch={batch} />
        </span>
        <span className="batch-cost">
          {batch.play_money ? (
            <span className="quiet">{FREE_DRAWINGS}</span>
          ) : (
            <>
              <b>
                {batch.actual_cost === null
                  ? usd(batch.estimated_cost, "limit")
                  : usd(batch.actual_cost, "sum")}
              </b>
              <span className="quiet">
                {batch.actual_cost === null ? `${usd(batch.hold_amount, "limit")} held` : "paid"}
              </span>
            </>
          )}
        </span>
        <time
          className="batch-age quiet"
          dateTime={new Date(created_at * 1000).toISOString()}
          title={localTime(created_at)}
        >
          {ago(created_at)}
        </time>
      </a>
    </li>
  );
}

const SHOWN = 4;

/** The first images of a batch, small. */
function Strip({ batch }: { batch: BatchObject }) {
  const shown = batch.status === "output_deleted" ? 0 : Math.min(SHOWN, batch.success_count);
  const first = useData(`${batch.id} ${shown}`, async (signal) =>
    shown === 0 ? [] : await firstImages(batch.id, shown, signal),
  );
  return (first.value ?? []).map(({ custom_id }) => (
    <RemotePicture key={custom_id} path={thumbnailPath(batch.id, custom_id, 256)} alt="" />
  ));
}
