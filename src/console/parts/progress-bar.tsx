import type { BatchObject } from "../../contract/batch-api.ts";

/** How far the items of a batch are: made, failed, and the rest. */
export function ProgressBar({ batch }: { batch: BatchObject }) {
  const { item_count, success_count, fail_count } = batch;
  const share = (part: number) => `${item_count === 0 ? 0 : (part / item_count) * 100}%`;
  return (
    <div
      className="progress"
      role="progressbar"
      aria-label="images made"
      aria-valuemin={0}
      aria-valuemax={item_count}
      aria-valuenow={success_count + fail_count}
      aria-valuetext={`${success_count} made, ${fail_count} failed, of ${item_count}`}
    >
      <span className="made" style={{ width: share(success_count) }} />
      <span className="failed" style={{ width: share(fail_count) }} />
    </div>
  );
}
