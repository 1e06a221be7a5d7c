/**
 * The beginning of a workflow command of GitHub Actions: `::` at the start of a line, also after blanks, and the older
 * `##[` anywhere in a line. See "Workflow commands for GitHub Actions" in the GitHub documentation.
 */
const COMMAND = /^([^\S\n]*):(?=:)|#(?=#\[)/gm;

/**
 * Disarms workflow commands in a text: their first character becomes an escape that JSON parsers read as the same text.
 */
export function withoutWorkflowCommands(text: string): string {
  return text.replace(COMMAND, (found, blanks: string | undefined) =>
    found === "#" ? "\\u0023" : `${blanks ?? ""}\\u003a`,
  );
}

type Writable = Pick<NodeJS.WriteStream, "write">;

/**
 * Disarms workflow commands in every string that is written to a stream from now on; bytes pass unchanged. Returns a
 * function that writes a string unchanged.
 */
export function guardWorkflowCommands(stream: Writable): (text: string) => void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...rest: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...rest: unknown[]) =>
    write(typeof chunk === "string" ? withoutWorkflowCommands(chunk) : chunk, ...rest);
  return (text) => void write(text);
}
