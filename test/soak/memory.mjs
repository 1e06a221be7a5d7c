/** How far each status is: a batch never goes back. */
const RANK = {
  queued: 0,
  running: 1,
  processing_results: 2,
  settling: 3,
  completed: 4,
  failed: 4,
  cancelled: 4,
  output_deleted: 5,
};

/** Something that the service promised and did not keep. */
class Violation extends Error {}

export function expect(isRight, message) {
  if (!isRight) throw new Violation(message);
}

/**
 * The answers that a client got, over all kills: they must stay true. A `want` is a create that was sent under an idempotency
 * key; its `batch` is filled in when an answer came.
 */
export class Memory {
  /** Every create that was ever sent, by its key. */
  wants = new Map();
  /** The last seen state of each batch, by id. */
  batches = new Map();

  want(idempotencyKey, key, body) {
    const want = { idempotencyKey, key, body, batchId: null };
    this.wants.set(idempotencyKey, want);
    return want;
  }

  /** An answer to a create. */
  accepted(want, batch) {
    expect(
      want.batchId === null || want.batchId === batch.id,
      `key ${want.idempotencyKey} made ${want.batchId}, and now ${batch.id}`,
    );
    want.batchId = batch.id;
    if (!this.batches.has(batch.id)) {
      const tried = { cancel: false, deleteOutputs: false, deleteRecord: false };
      this.batches.set(batch.id, { id: batch.id, want, view: batch, done: { ...tried }, tried });
    }
    return this.batches.get(batch.id);
  }

  /** Returns the known state of a batch now; compare with it the answer to a request that is sent now. */
  known(id) {
    const { view, done } = this.batches.get(id);
    return { view, done: { ...done } };
  }

  /** Checks a batch as it was answered, and remembers it. `before` is what was known when the request was sent. */
  saw(batch, before) {
    compareViews(before.view, batch);
    if (before.done.cancel) {
      expect(RANK[batch.status] >= 4, `${batch.id} was cancelled and is ${batch.status}`);
    }
    if (before.done.deleteOutputs) {
      expect(batch.status === "output_deleted", `outputs of ${batch.id} were deleted, it is ${batch.status}`);
    }
    const entry = this.batches.get(batch.id);
    if (RANK[batch.status] >= RANK[entry.view.status]) entry.view = batch;
  }
}

function compareViews(before, now) {
  const say = `${now.id} was ${before.status} (${before.success_count}+${before.fail_count}), is ${now.status} (${now.success_count}+${now.fail_count})`;
  expect(RANK[now.status] >= RANK[before.status], say);
  expect(RANK[before.status] !== 4 || now.status === before.status || now.status === "output_deleted", say);
  expect(now.success_count >= before.success_count && now.fail_count >= before.fail_count, say);
  expect(now.hold_amount === before.hold_amount, `${now.id}: the hold was changed`);
  if (RANK[before.status] < 4) return;
  expect(
    now.actual_cost === before.actual_cost,
    `${now.id} cost ${before.actual_cost}, and now ${now.actual_cost}`,
  );
  expect(now.success_count === before.success_count, say);
}

export const hasEnded = (status) => RANK[status] >= 4;
