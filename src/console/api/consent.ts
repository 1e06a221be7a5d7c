import { IDEMPOTENCY_KEY_HEADER, MAX_COST_HEADER } from "../../contract/routes.ts";
import { microsToDecimal, numberToMicros } from "../../kernel/money.ts";

/** The agreement of a person to one request. */
export interface Consent {
  /** The same key makes the same images once, however often it is sent. */
  idempotencyKey: string;
  /** US dollars of real money; null where the images cost none. */
  maxCost: number | null;
}

/** The headers that tell the service of it. */
export function consentHeaders({ idempotencyKey, maxCost }: Consent): Record<string, string> {
  return {
    [IDEMPOTENCY_KEY_HEADER]: idempotencyKey,
    // A product of prices has more digits than an amount may have.
    ...(maxCost === null ? {} : { [MAX_COST_HEADER]: microsToDecimal(numberToMicros(maxCost)) }),
  };
}
