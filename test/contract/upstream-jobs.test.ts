import { expect, it } from "vitest";
import { jobsText } from "../../src/contract/upstream-jobs.ts";

it("[JOB-11] jobs are described by their number, and the state and age of the oldest", () => {
  const job = (state: string, createdAtMs: number) => ({ state, createdAtMs });
  expect(jobsText([], 0)).toBeNull();
  expect(jobsText([job("PENDING", 0)], 720_000)).toBe("upstream job PENDING for 12 min");
  const jobs = [job("RUNNING", 60_000), job("PENDING", 0)];
  expect(jobsText(jobs, 7_200_000)).toBe("2 upstream jobs, the oldest PENDING for 2 h");
});
