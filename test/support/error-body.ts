import { expect } from "vitest";
import { errorType, SERVICE_ERRORS, type ServiceErrorCode } from "../../src/contract/errors.ts";

/**
 * Fails the test unless an answer is a success, or the one error body: a code of the catalogue with its status and
 * type, and nothing about the inside of the service. Server faults fail it, too, unless their code is in `allowed`.
 */
export function expectProperAnswer(
  answer: { status: number; requestId: string | null | undefined; body: string },
  allowed: readonly ServiceErrorCode[] = [],
): ServiceErrorCode | null {
  expect(answer.requestId).toMatch(/^[A-Za-z0-9._-]{1,128}$/);
  if (answer.status < 400 || answer.status === 416) return null;
  const { error } = JSON.parse(answer.body) as { error: Record<string, unknown> };
  const code = String(error.code) as ServiceErrorCode;
  expect(Object.keys(error).filter((name) => name !== "param")).toEqual(["type", "code", "message"]);
  expect(error.message).toEqual(expect.any(String));
  expect([code, SERVICE_ERRORS[code]?.httpStatus]).toEqual([code, answer.status]);
  expect(error.type).toBe(errorType(answer.status));
  expect(answer.body).not.toMatch(/node_modules|node:internal|\.[jt]s:\d+|\\n\s+at |\/tmp\//);
  expect(answer.body).not.toContain(process.cwd());
  if (!allowed.includes(code)) expect(answer.status, answer.body).toBeLessThan(500);
  return code;
}
