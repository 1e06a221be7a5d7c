/**
 * What the runner of GitHub Actions takes for a command of its own: `::` at the beginning of a line, behind blanks too,
 * and the older `##[` anywhere in it.
 */
const COMMAND = /^([^\S\n]*):(?=:)|#(?=#\[)/gm;

/**
 * The text without commands to the runner: their first character becomes an escape that JSON reads as the same text.
 */
export function withoutWorkflowCommands(text: string): string {
  return text.replace(COMMAND, (found, blanks: string | undefined) =>
    found === "#" ? "\\u0023" : `${blanks ?? ""}\\u003a`,
  );
}

type Writable = Pick<NodeJS.WriteStream, "write">;

/**
 * From here on no text that is written to a stream commands the runner, whoever it is from. Bytes pass as they are.
 * Answers how to write a text as it is.
 */
export function guardWorkflowCommands(stream: Writable): (text: string) => void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? withoutWorkflowCommands(chunk) : chunk, ...rest);
  return (text) => void write(text);
}
