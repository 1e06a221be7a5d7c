import { beforeEach, describe, expect, it } from "vitest";
import { recordCalls } from "../../src/domain/health/calls.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { openBeside } from "../support/service.ts";
import { tempDir } from "../support/temp-dir.ts";

let data: string;
beforeEach(async () => {
  data = await tempDir();
  const { stores } = await openBeside(data);
  const call = (provider: string, model: string, isError = false) => ({
    provider,
    model,
    isError,
    images: isError ? 0 : 1,
    isMaybePaidTwice: isError,
    billedMicroUsd: isError ? 0 : 40_000,
    usage: isError
      ? null
      : { inputTokens: 3, outputTokens: 5, costMicroUsd: provider === "relay" ? 30_000 : null },
  });
  await stores.write(async (tx) => {
    await recordCalls(tx, [call("relay", "a")], Date.UTC(2020, 0, 30, 23, 59, 59));
    await recordCalls(tx, [call("relay", "b")], Date.UTC(2020, 0, 31, 0, 0, 0));
    await recordCalls(tx, [call("relay", "b", true)], Date.UTC(2020, 0, 31, 12, 3, 0));
    await recordCalls(tx, [call("own", "a")], Date.UTC(2020, 0, 31, 23, 59, 59));
    await recordCalls(tx, [call("own", "a")], Date.UTC(2020, 1, 1, 0, 0, 0));
  });
});

const usage = (...args: string[]) => runInProcess(["admin", "usage", "--data", data, ...args], { cwd: data });
const requestsOf = async (...args: string[]) => {
  const { code, stdout } = await usage("--json", ...args);
  expect(code).toBe(0);
  return JSON.parse(stdout).usage.map(({ requests, day }: { requests: number; day: string }) => [
    day,
    requests,
  ]);
};

describe("imgbatch admin usage", () => {
  it("sums up by day, by model and by provider, as JSON and for people", async () => {
    const sums = { may_be_paid_twice: 0, billed: 0.04, upstream_cost: 0, input_tokens: 3, output_tokens: 5 };
    const one = { requests: 1, images: 1, errors: 0, ...sums, not_reported: 0 };
    expect(JSON.parse((await usage("--json")).stdout).usage).toEqual([
      { day: "2020-01-30", ...one, upstream_cost: 0.03 },
      {
        day: "2020-01-31",
        requests: 3,
        images: 2,
        errors: 1,
        may_be_paid_twice: 1,
        billed: 0.08,
        upstream_cost: 0.03,
        not_reported: 0.04,
        input_tokens: 6,
        output_tokens: 10,
      },
      { day: "2020-02-01", ...one, not_reported: 0.04 },
    ]);
    expect(JSON.parse((await usage("--by", "model", "--json")).stdout).usage).toMatchObject([
      { model: "a", requests: 3, errors: 0, billed: 0.12, upstream_cost: 0.03, not_reported: 0.08 },
      { model: "b", requests: 2, errors: 1, billed: 0.04, upstream_cost: 0.03 },
    ]);
    expect((await usage("--by", "provider")).stdout).toBe(
      [
        "provider  requests  images  errors  paid twice?  billed  upstream cost  not reported  tokens in  tokens out",
        "own              2       2       0            0   $0.08              -   about $0.08          6          10",
        "relay            3       2       1            1   $0.08   $0.06 (-25%)             -          6          10",
        "",
      ].join("\n"),
    );
  });

  it("takes days of UTC from their beginning to their end, times, and how long ago", async () => {
    expect(await requestsOf("--from", "2020-01-31", "--to", "2020-01-31")).toEqual([["2020-01-31", 3]]);
    expect(await requestsOf("--to", "2020-01-30")).toEqual([["2020-01-30", 1]]);
    const noon = ["--from", "2020-01-31T12:04:00Z", "--to", "2020-02-01T00:00:00+00:00"];
    expect(await requestsOf(...noon)).toEqual([["2020-01-31", 2]]);
    expect(await requestsOf("--from", "1h")).toEqual([]);
  });

  it("names a wrong option and what would be right", async () => {
    const wrong = async (...args: string[]) => {
      const { code, stderr } = await usage(...args);
      return [code, stderr.split("\n")[0]];
    };
    expect(await wrong("--from", "yesterday")).toEqual([
      2,
      expect.stringContaining('--from "yesterday": write a day'),
    ]);
    expect(await wrong("--to", "2020-02-30")).toEqual([2, expect.stringContaining('--to "2020-02-30"')]);
    expect(await wrong("--by", "modle")).toEqual([2, expect.stringContaining("Did you mean model?")]);
  });
});
