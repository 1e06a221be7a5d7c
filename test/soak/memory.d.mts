export class Violation extends Error {}
export function expect(isRight: unknown, message: string): asserts isRight;
export function hasEnded(status: string): boolean;

export interface Want {
  idempotencyKey: string;
  key: string;
  body: object;
  batchId: string | null;
}

export interface Entry {
  id: string;
  want: Want;
  view: { status: string; actual_cost: number | null; success_count: number };
}

export class Memory {
  wants: Map<string, Want>;
  batches: Map<string, Entry>;
  want(idempotencyKey: string, key: string, body: object): Want;
}
