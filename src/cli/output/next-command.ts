import { basename, extname } from "node:path";
import { quoted, shellWord } from "../../runs/reports/run-report.ts";
import type { GlobalOptions } from "../options.ts";

/** The options that select the service and the key. The next command needs the same ones. */
export type Whereabouts = Partial<Pick<GlobalOptions, "baseUrl" | "apiKeyFile" | "data" | "config">>;

/** A flag of a command line. A plain string is a name, which may look like a flag. */
export interface Flag {
  flag: `--${string}`;
}

/**
 * Writes the next command line, with its words quoted for a shell where needed: `imgbatch wait 'my images'`. A name that
 * begins with `-` is not read as an option.
 */
export function nextCommand(where: Whereabouts, ...words: readonly (string | Flag)[]): string {
  const { baseUrl, apiKeyFile, data, config } = where;
  const options = [
    // An address with user, query or fragment is refused anyway, and may hold a password.
    ...given({ flag: "--base-url" }, baseUrl === undefined || /[@?#]/.test(baseUrl) ? undefined : baseUrl),
    ...given({ flag: "--api-key-file" }, apiKeyFile),
    ...given({ flag: "--data" }, data),
    ...given({ flag: "--config" }, config),
  ];
  return ["imgbatch", ...words, ...options].map(commandWord).join(" ");
}

/** Writes a typed command line again, with a flag, or with another value of an option. Words behind `--` are no options. */
export function commandAgain(typed: readonly string[], flag: Flag["flag"], value?: string): string {
  const end = typed.indexOf("--");
  const head = end < 0 ? typed : typed.slice(0, end);
  const isValue = (i: number) => value !== undefined && head[i - 1] === flag;
  const kept = head.filter((word, i) => word !== flag && !isValue(i) && !word.startsWith(`${flag}=`));
  const words = [
    ...kept,
    flag,
    ...(value === undefined ? [] : [value]),
    ...(end < 0 ? [] : typed.slice(end)),
  ];
  return ["imgbatch", ...words].map(quoted).join(" ");
}

/** A lone `-` is standard input. */
function commandWord(word: string | Flag): string {
  if (typeof word !== "string") return word.flag;
  return word === "-" ? word : shellWord(word);
}

function given(flag: Flag, value: string | undefined): (string | Flag)[] {
  return value === undefined ? [] : [flag, value];
}

/** The default directory for the run of a prompt file: `prompts-images`; `imgbatch-images` for standard input. */
export function defaultRunDirectory(file: string): string {
  return file === "-" ? "imgbatch-images" : `${basename(file, extname(file))}-images`;
}
