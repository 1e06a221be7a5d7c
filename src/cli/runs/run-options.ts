import { type Allowance, parseAllowance } from "../../runs/standing.ts";
import * as read from "../command-line/option-values.ts";

/** The options that `submit` and `retry` share, checked. `runOptions` in commands/shared-options.ts declares them. */
export interface RunOptions {
  /** How many images may fail before the exit code reports a failure. Default: none. */
  allowance: Allowance;
  timeoutMs: number | undefined;
  intervalMs: number | undefined;
  maxCostMicroUsd: number | undefined;
  unitCostMicroUsd: number | undefined;
  cancelOnInterrupt: boolean;
}

/** Throws `USAGE` for the first option that has a wrong value. */
export function readRunOptions(options: read.TypedOptions): RunOptions {
  const advice = "write a number or a share such as 5%";
  return {
    allowance: read.readOption(options, "allowFailures", advice, parseAllowance) ?? {
      count: 0,
    },
    timeoutMs: read.positiveDurationOption(options, "timeout"),
    intervalMs: read.positiveDurationOption(options, "interval"),
    maxCostMicroUsd: read.usdOption(options, "maxCost"),
    unitCostMicroUsd: read.usdOption(options, "unitCost"),
    cancelOnInterrupt: read.flagOption(options, "cancelOnInterrupt"),
  };
}
