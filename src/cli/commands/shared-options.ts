import type { ExitName } from "../../contract/exit-codes.ts";
import type { ArgumentSpec } from "../command-line/command-spec.ts";
import type { OptionSpec } from "../command-line/option-values.ts";

/** What a run leaves for people and CI systems; `readReportFlags` reads these. */
export const reportOptions: readonly OptionSpec[] = [
  { flags: "--junit <file>", description: "write JUnit XML: a test case for each image" },
  { flags: "--markdown <file>", description: "write a summary in Markdown, failures first" },
  { flags: "--gallery", description: "write index.html, the contact sheet (default)" },
  { flags: "--no-gallery", description: "leave index.html out" },
];

export const target: ArgumentSpec = {
  name: "<id|dir>",
  description: "a batch id, or the output directory of a run",
};
export const targets: ArgumentSpec = { ...target, name: "<id|dir...>" };

export const intervalOption: OptionSpec = {
  flags: "--interval <time>",
  description: "time between two looks at a batch; 10s or more for a service elsewhere",
  default: "chosen by the service and the time passed",
};
export const timeoutOption: OptionSpec = {
  flags: "--timeout <time>",
  description: "give up waiting after this time, such as 45m; the batch goes on",
};
/** What making images may cost, and how it may end. */
export const runOptions: readonly OptionSpec[] = [
  timeoutOption,
  intervalOption,
  { flags: "--max-cost <usd>", description: "refuse, before sending, what may cost more" },
  { flags: "--unit-cost <usd>", description: "what an image costs, where the service does not say" },
  {
    flags: "--allow-failures <n|p%>",
    description: "succeed with up to this many failed images",
    default: "0",
  },
  { flags: "--cancel-on-interrupt", description: "cancel the batches when this command is interrupted" },
  ...reportOptions,
];

/** A question to the service, which may not be there. */
export const asking: readonly ExitName[] = [
  "auth",
  "conflict",
  "temporary",
  "gone",
  "interrupted",
  "terminated",
];
/** A question about batches. */
export const askingOf: readonly ExitName[] = asking;
/** Waiting for the end of batches. */
export const waiting: readonly ExitName[] = [...askingOf, "someFailed", "noImages", "timeout"];
/** Everything that making images can end with. */
export const running: readonly ExitName[] = [...waiting, "money", "saving"];
