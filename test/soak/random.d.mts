export interface Random {
  next(): number;
  /** Both ends included. */
  whole(low: number, high: number): number;
  chance(share: number): boolean;
  pick<T>(list: readonly T[]): T;
  spread(low: number, high: number): number;
}

export function seeded(...parts: (string | number)[]): Random;
