/** Decimal amounts as integers. A micro is a millionth of the unit: 1 US dollar is 1 000 000 micro-dollars. */
const MICROS = 1_000_000;

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

/** `$6.70`, `$0.0335`: at least two decimals, at most six, no trailing zeros beyond the cents. */
export function formatUsd(micros: number): string {
  return `${micros < 0 ? "-" : ""}$${microsToDecimal(Math.abs(micros))}`;
}

/** The same without a sign, for an amount that is not negative: `6.70`. `parseUsd` reads it. */
export function microsToDecimal(micros: number): string {
  const digits = String(micros).padStart(7, "0");
  return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, "")}`;
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
