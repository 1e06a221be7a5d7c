/** Decimal amounts as integers. A micro is a millionth of the unit: 1 US dollar is 1 000 000 micro-dollars. */
const MICROS = 1_000_000;
const MICROS_PER_CENT = 10_000;

/** Wire form of an amount: a JSON number with at most six decimals. */
export function microsToNumber(micros: number): number {
  return micros / MICROS;
}

/** Returns the nearest whole number of micros to a JSON number. Reads what `microsToNumber` wrote. */
export function numberToMicros(amount: number): number {
  return Math.round(amount * MICROS);
}

/**
 * Reads a typed amount and returns micros: `5`, `0.25`, digits with at most six decimals. Null for other text, and for an
 * amount that a number cannot hold exactly. Nothing is ever rounded.
 */
export function parseUsd(text: string): number | null {
  const [, whole, fraction = ""] = /^([0-9]+)(?:\.([0-9]{1,6}))?$/.exec(text) ?? [];
  if (whole === undefined) return null;
  const micros = BigInt(whole + fraction.padEnd(6, "0"));
  return micros <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(micros) : null;
}

/**
 * Writes an amount for people.
 * - `exact`: a unit price, or a line of a ledger: `$6.70`, `$0.0335`, with two to six decimals.
 * - `sum`: what something has cost, in cents: `$6.70`. Less than half a cent is `<$0.01`, unless it is nothing.
 * - `limit`: what somebody agrees to pay, rounded up to cents.
 */
export function formatUsd(micros: number, as: "exact" | "sum" | "limit" = "exact"): string {
  if (as === "sum" && micros > 0 && micros < MICROS_PER_CENT / 2) return "<$0.01";
  const shown =
    as === "exact"
      ? micros
      : as === "limit"
        ? upToCents(micros)
        : MICROS_PER_CENT * Math.round(micros / MICROS_PER_CENT);
  return `${shown < 0 ? "-" : ""}$${microsToDecimal(Math.abs(shown))}`;
}

/** The same without a sign, for an amount that is not negative: `6.70`. `parseUsd` reads it. */
export function microsToDecimal(micros: number): string {
  const digits = String(micros).padStart(7, "0");
  return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, "")}`;
}

/** Returns the smallest amount of whole cents that is not below this one. */
export function upToCents(micros: number): number {
  return MICROS_PER_CENT * Math.ceil(micros / MICROS_PER_CENT);
}

/** What images cost. With play money they are drawn, and the amount is no real money. */
export interface Cost {
  micros: number;
  isPlay: boolean;
}

/** The words for play money, which is never shown like dollars. */
export const FREE_DRAWINGS = "drawn, free of charge";

/** Says what images cost, or may cost (`limit`): `$6.70`, or that they are drawn. */
export function costText({ micros, isPlay }: Cost, as: "exact" | "sum" | "limit" = "sum"): string {
  return isPlay ? FREE_DRAWINGS : formatUsd(micros, as);
}

/** Says what was paid now of what images have cost in all: `$0.40`, or `$0.00 now ($0.40 paid earlier)`. */
export function paidText(cost: Cost, nowMicroUsd: number): string {
  const before = cost.micros - nowMicroUsd;
  if (cost.isPlay || before <= 0) return costText(cost);
  return `${formatUsd(nowMicroUsd, "sum")} now (${formatUsd(before, "sum")} paid earlier)`;
}

/** Says an exact amount of an account: `$6.70`, or `6.70 in play money`. */
export function amountText({ micros, isPlay }: Cost): string {
  if (!isPlay) return formatUsd(micros);
  return `${micros < 0 ? "-" : ""}${microsToDecimal(Math.abs(micros))} in play money`;
}

/** Adds up what batches cost: real money only, unless all of it is play money. Null while one of them has no cost. */
export function sumCosts(costs: readonly { micros: number | null; isPlay: boolean }[]): Cost | null {
  const isPlay = costs.length > 0 && costs.every((cost) => cost.isPlay);
  let sum = 0;
  for (const { micros, ...cost } of costs) {
    if (micros === null) return null;
    if (isPlay || !cost.isPlay) sum += micros;
  }
  return { micros: sum, isPlay };
}

/** The field that marks the amounts of a document of `--json` as play money. */
export function playMoneyField(cost: Cost | null): { play_money?: true } {
  return cost?.isPlay ? { play_money: true } : {};
}

/**
 * The product of decimals (as JSON numbers or digit strings), in micros, rounded half up once.
 * Exact: the factors are taken as the decimals that they print as, never as binary fractions.
 */
export function multiplyToMicros(factors: readonly number[]): number {
  let numerator = 1n;
  let scale = 0;
  for (const factor of factors) {
    const { digits, decimals } = toDecimal(factor);
    numerator *= digits;
    scale += decimals;
  }
  const denominator = 10n ** BigInt(scale);
  const doubled = (numerator * BigInt(MICROS) * 2n + denominator) / (denominator * 2n);
  return Number(doubled);
}

function toDecimal(value: number): { digits: bigint; decimals: number } {
  if (!Number.isFinite(value) || value < 0) throw new RangeError(`${value} is no amount`);
  const [mantissa = "0", exponent = "0"] = value.toExponential().split("e");
  const [whole = "0", fraction = ""] = mantissa.split(".");
  const decimals = fraction.length - Number(exponent);
  const digits = BigInt(whole + fraction);
  return decimals >= 0 ? { digits, decimals } : { digits: digits * 10n ** BigInt(-decimals), decimals: 0 };
}
