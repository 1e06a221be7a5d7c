import { isTerminal } from "../../../contract/statuses.ts";
import { saidLines } from "../../../contract/waiting.ts";
import { counted } from "../../../kernel/text.ts";
import { hrefOf } from "../../hooks/use-route.ts";
import { Counts } from "../../parts/counts.tsx";
import { Problem } from "../../parts/notes.tsx";
import { ProgressBar } from "../../parts/progress-bar.tsx";
import { StatusBadge } from "../../parts/status-badge.tsx";
import { ago, costOf, localTime, usd, waitingWords } from "../../parts/words.ts";
import { BatchActions, type BatchActionsProps } from "./batch-actions.tsx";

/** The facts of a batch as a whole, and what can be done with it. */
export function BatchHead(props: BatchActionsProps) {
  const { batch } = props;
  const { status, waiting, error, parent_batch_id } = batch;
  const retries = new Set(
    props.items?.map(({ retried_in }) => retried_in).filter((id) => typeof id === "string"),
  );
  return (
    <section className="batch-head" aria-label="Batch">
      <a className="back" href={hrefOf("batches")}>
        Batches
      </a>
      <div className="page-head">
        <h1 dir="auto">{batch.task_name}</h1>
        <BatchActions {...props} />
      </div>
      <div className="batch-line" role="status">
        <StatusBadge status={status} />
        <Counts batch={batch} />
        <ProgressBar batch={batch} />
      </div>
      {batch.queued_behind !== null && batch.queued_behind > 0 && (
        <p className="note warn">
          It waits for {counted(batch.queued_behind, "other batch", "other batches")} before it.
        </p>
      )}
      {waiting && !isTerminal(status) && (
        <>
          <p className="note warn">{waitingWords(waiting)}</p>
          {saidLines(waiting.said).map((line) => (
            <p key={line} className="quiet small-text">
              {line}
            </p>
          ))}
        </>
      )}
      {error && (
        <p className="note bad">
          <Problem message={error.message} code={error.code} />
        </p>
      )}
      <dl className="facts">
        <Fact label="cost">
          {batch.actual_cost !== null || batch.play_money
            ? costOf(batch.actual_cost ?? 0, batch.play_money)
            : `about ${usd(batch.estimated_cost, "limit")}, ${usd(batch.hold_amount, "limit")} held`}
        </Fact>
        <Fact label="model">{batch.model}</Fact>
        {batch.provider && <Fact label="made by">{batch.provider}</Fact>}
        <Fact label="created">
          <span title={localTime(batch.created_at)}>{ago(batch.created_at)}</span>
        </Fact>
        {batch.expires_at !== null && status !== "output_deleted" && (
          <Fact label="images kept until">{localTime(batch.expires_at)}</Fact>
        )}
        {parent_batch_id && (
          <Fact label="retries">
            <a href={hrefOf("batches", parent_batch_id)}>an earlier batch</a>
          </Fact>
        )}
        {[...retries].map((id) => (
          <Fact key={id} label="retried in">
            <a href={hrefOf("batches", id)}>a later batch</a>
          </Fact>
        ))}
        <Fact label="id">
          <code>{batch.id}</code>
        </Fact>
      </dl>
    </section>
  );
}

function Fact({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}
