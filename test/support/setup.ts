import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from "vitest";
import { forgetKeys } from "../../src/kernel/hide-keys.ts";
import { skipLeftOut } from "./cluster/left-out.ts";
import { seedRandomCases } from "./fuzz-runs.ts";
import { forgetSecrets, takeFindings } from "./secrets.ts";
import { takeFaults } from "./watched-answers.ts";
import "./once-a-process.ts";

/** The handles that a test file must not leave behind. Sockets and pipes of the test runner itself are no such handles. */
const WATCHED = ["TCPServerWrap", "TCPSocketWrap", "Timeout", "ChildProcess", "MessagePort", "Worker"];
const PATIENCE_MS = 10_000;

seedRandomCases();

let before = new Map<string, number>();

beforeEach(skipLeftOut);

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  vi.useRealTimers();
});

beforeAll(() => {
  before = countHandles();
  forgetSecrets();
});

afterAll(async () => {
  forgetKeys();
  const deadline = Date.now() + PATIENCE_MS;
  while (leftBehind().length > 0 && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(leftBehind(), "handles that this file left open").toEqual([]);
  expect(await takeFaults(), "answers that are not as the API is described").toEqual([]);
  expect(takeFindings(), "secrets that were written or told").toEqual([]);
});

function leftBehind(): string[] {
  return [...countHandles()].filter(([type, count]) => count > (before.get(type) ?? 0)).map(([type]) => type);
}

function countHandles(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const type of process.getActiveResourcesInfo()) {
    if (WATCHED.includes(type)) counts.set(type, (counts.get(type) ?? 0) + 1);
  }
  return counts;
}
