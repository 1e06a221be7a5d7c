import { EXIT_CODES, type ExitName } from "../../../contract/exit-codes.ts";

/** What one look found. */
export interface Finding {
  check: string;
  /** `warn` may matter one day; `fail` keeps something from working now. */
  state: "ok" | "warn" | "fail";
  message: string;
  /** What to do; null when there is nothing to do. */
  advice: string | null;
  /** How a command would end because of it; null unless it is a failure. */
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

/** The worst first: what has to be mended before anything below it can be seen. */
const WORST_FIRST: readonly ExitName[] = ["internal", "usage", "auth", "conflict", "saving", "temporary"];

/** The exit code of the worst finding; 0 when nothing fails. */
export function worstExitCode(findings: readonly Finding[]): number {
  const exits = new Set(findings.map(({ exit }) => exit));
  return EXIT_CODES[WORST_FIRST.find((exit) => exits.has(exit)) ?? "ok"].code;
}
