import { basename, extname } from "node:path";
import { shellWord } from "../run/reports/run-report.ts";
import type { GlobalOptions } from "./command.ts";

/** The options that say where the service and its key are: a command to type next needs the same ones. */
export type Whereabouts = Partial<Pick<GlobalOptions, "baseUrl" | "apiKeyFile" | "data" | "config">>;

/** A command line to type next, its words quoted for a shell where they need it: `imgbatch wait 'my images'`. */
export function nextCommand(where: Whereabouts, ...words: readonly string[]): string {
  const { baseUrl, apiKeyFile, data, config } = where;
  const options = [
    // An address with more than host and path is refused, and may hold a password.
    ...given("--base-url", baseUrl === undefined || /[@?#]/.test(baseUrl) ? undefined : baseUrl),
    ...given("--api-key-file", apiKeyFile),
    ...given("--data", data),
    ...given("--config", config),
  ];
  return ["imgbatch", ...words, ...options].map(commandWord).join(" ");
}

/** Flags stand as they are: to a shell they are plain words. */
function commandWord(text: string): string {
  return /^--[a-z-]+$/.test(text) ? text : shellWord(text);
}

function given(flag: string, value: string | undefined): string[] {
  return value === undefined ? [] : [flag, value];
}

/** Where the run of a prompt file is kept when nobody says: `prompts-images`; `imgbatch-images` for standard input. */
export function defaultRunDirectory(file: string): string {
  return file === "-" ? "imgbatch-images" : `${basename(file, extname(file))}-images`;
}
