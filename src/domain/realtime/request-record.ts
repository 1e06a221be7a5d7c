import type { ImgbatchError } from "../../contract/errors.ts";
import type { Transaction } from "../ports/stores.ts";

/**
 * Follows a request, so that its answer can be given again. `T` is what was made. Each write is part of the transaction
 * that moves the money.
 */
export interface RequestRecord<T> {
  /** An earlier run of the same request was cut short, and an upstream may have been paid for it. */
  readonly mayBePaidTwice: boolean;
  /** Two earlier runs were cut short, and an upstream may have been paid for both: nothing is sent any more. */
  readonly isSpent: boolean;
  /**
   * Called in the transaction that places the hold `realtimeId`, before anything is asked for. `isPaid`: an upstream that
   * costs money may be asked.
   */
  opened(tx: Transaction, run: { realtimeId: string; isPaid: boolean }): Promise<void>;
  /** Makes `error` the answer, in place of a third run. Throws when another answer counts. */
  givenUp(tx: Transaction, error: ImgbatchError): Promise<void>;
  /** Makes the answer durable. Called before the transaction that ends the hold. */
  keep(made: T): Promise<void>;
  /** Called in the transaction that ends the hold after `keep`. Throws when another answer counts. */
  finished(tx: Transaction): Promise<void>;
  /** The request ends with an error, and an upstream may have been paid all the same. */
  lost(): void;
}

/** For requests that are not repeated. */
export const NOT_RECORDED: RequestRecord<unknown> = {
  mayBePaidTwice: false,
  isSpent: false,
  opened: async () => {},
  givenUp: async () => {},
  keep: async () => {},
  finished: async () => {},
  lost: () => {},
};
