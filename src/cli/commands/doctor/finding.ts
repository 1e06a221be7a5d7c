import { EXIT_CODES, type ExitName } from "../../../contract/exit-codes.ts";
import type { Trouble } from "../../../service/provider-status.ts";

/** The result of one check. */
export interface Finding {
  check: string;
  /** `warn` may cause trouble later; `fail` prevents runs now. */
  state: "ok" | "warn" | "fail";
  message: string;
  /** The step that solves it; null if none is needed. */
  advice: string | null;
  /** The exit of a command that meets this problem; null unless it is a failure. */
  exit: ExitName | null;
}

export function ok(check: string, message: string): Finding {
  return { check, state: "ok", message, advice: null, exit: null };
}

export function warn(check: string, message: string, advice: string): Finding {
  return { check, state: "warn", message, advice, exit: null };
}

export function fail(check: string, exit: ExitName, message: string, advice: string): Finding {
  return { check, state: "fail", message, advice, exit };
}

/** The exits in the order in which their problems must be solved. */
const WORST_FIRST: readonly ExitName[] = [
  "internal",
  "usage",
  "auth",
  "money",
  "conflict",
  "saving",
  "temporary",
];

/** The exit code of the worst finding; 0 if no check failed. */
export function worstExitCode(findings: readonly Pick<Finding, "exit">[]): number {
  const exits = new Set(findings.map(({ exit }) => exit));
  return EXIT_CODES[WORST_FIRST.find((exit) => exits.has(exit)) ?? "ok"].code;
}

/** Returns the exit of a command that meets this trouble of an upstream: all but keys, permissions and money may pass. */
export function exitOfTrouble(trouble: Trouble | null): ExitName {
  if (trouble === "credential" || trouble === "forbidden") return "auth";
  return trouble === "billing" ? "money" : "temporary";
}
