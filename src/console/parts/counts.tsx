import type { BatchObject } from "../../contract/batch-api.ts";
import { count } from "./words.ts";

/** `12 of 20, 1 failed`. */
export function Counts({ batch }: { batch: BatchObject }) {
  const { item_count, success_count, fail_count } = batch;
  return (
    <span className="counts">
      {count(success_count)} <span className="of">of {count(item_count)}</span>
      {fail_count > 0 && <span className="fails"> · {count(fail_count)} failed</span>}
    </span>
  );
}
