import { basename, extname } from "node:path";
import { shellWord } from "../../runs/reports/run-report.ts";
import type { GlobalOptions } from "../command-line/global-options.ts";

/** The options that say where the service and its key are: a command to type next needs the same ones. */
export type Whereabouts = Partial<Pick<GlobalOptions, "baseUrl" | "apiKeyFile" | "data" | "config">>;

/** An option of a command line; every other word of one is a name that somebody chose. */
export interface Flag {
  flag: `--${string}`;
}

/**
 * A command line to type next, its words quoted for a shell where they need it: `imgbatch wait 'my images'`. No name is
 * taken for an option.
 */
export function nextCommand(where: Whereabouts, ...words: readonly (string | Flag)[]): string {
  const { baseUrl, apiKeyFile, data, config } = where;
  const options = [
    // An address with more than host and path is refused, and may hold a password.
    ...given({ flag: "--base-url" }, baseUrl === undefined || /[@?#]/.test(baseUrl) ? undefined : baseUrl),
    ...given({ flag: "--api-key-file" }, apiKeyFile),
    ...given({ flag: "--data" }, data),
    ...given({ flag: "--config" }, config),
  ];
  return ["imgbatch", ...words, ...options].map(commandWord).join(" ");
}

/** A lone `-` is standard input. */
function commandWord(word: string | Flag): string {
  if (typeof word !== "string") return word.flag;
  return word === "-" ? word : shellWord(word);
}

function given(flag: Flag, value: string | undefined): (string | Flag)[] {
  return value === undefined ? [] : [flag, value];
}

/** Where the run of a prompt file is kept when nobody says: `prompts-images`; `imgbatch-images` for standard input. */
export function defaultRunDirectory(file: string): string {
  return file === "-" ? "imgbatch-images" : `${basename(file, extname(file))}-images`;
}
