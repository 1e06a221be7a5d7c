import pg from "pg";
import { onTestFinished } from "vitest";
import { seededRandom } from "../soak/random.ts";

/** A statement that takes longer waits for a lock: the others go on meanwhile. */
const LOCK_WAIT_MS = 6;

/**
 * Until the end of the test, every statement that this process sends to PostgreSQL waits for a turn first. A seed
 * decides which of all waiting statements, on whichever connection, is next. So transactions meet between any two of
 * their statements.
 */
export function turnBeforeEveryStatement(): { begin(seed: number): void } {
  let random = seededRandom(1);
  const waiting: (() => void)[] = [];
  let isBusy = false;
  const next = () => {
    if (isBusy || waiting.length === 0) return;
    isBusy = true;
    // All statements that can go on by now are waiting.
    setImmediate(() => {
      const [go] = waiting.splice(Math.floor(random() * waiting.length), 1);
      go?.();
    });
  };
  const done = () => {
    isBusy = false;
    next();
  };
  const original = pg.Client.prototype.query;
  const inOrder = async function (this: pg.Client, ...given: unknown[]) {
    await new Promise<void>((resolve) => {
      waiting.push(resolve);
      next();
    });
    const asked = (original as (...given: unknown[]) => Promise<unknown>).apply(this, given);
    let isOver = false;
    const end = () => {
      if (isOver) return;
      isOver = true;
      clearTimeout(late);
      done();
    };
    const late = setTimeout(end, LOCK_WAIT_MS);
    asked.then(end, end);
    return asked;
  };
  pg.Client.prototype.query = inOrder as typeof original;
  onTestFinished(() => {
    pg.Client.prototype.query = original;
  });
  return {
    begin: (seed) => {
      random = seededRandom(seed);
    },
  };
}
