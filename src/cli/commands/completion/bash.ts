import type { CompletedCommand, Kind } from "./completed-commands.ts";

/** The completion of bash 3.2 and later; it needs no other script. */
export function bashCompletion(commands: readonly CompletedCommand[]): string {
  const paths = commands
    .filter(({ path }) => path.length > 0)
    .map(({ path }) => quoted(` ${path.join(" ")}`));
  return `# bash completion of imgbatch. In ~/.bashrc: source <(imgbatch completion bash)
_imgbatch() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} path='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ \${COMP_WORDS[i]} == -- ]]; then
      COMPREPLY=($(compgen -f -- "$cur"))
      return
    fi
    case "$path \${COMP_WORDS[i]}" in
      ${paths.join(" | \\\n      ")}) path="$path \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path:$prev" in
${commands.flatMap(valueCases).join("\n")}
  esac
  case "$path" in
${commands.map(wordCase).join("\n")}
  esac
}
complete -o filenames -F _imgbatch imgbatch
`;
}

/** The cases for the value of an option. */
function valueCases({ path, options }: CompletedCommand): string[] {
  const prefix = path.map((word) => ` ${word}`).join("");
  return options.flatMap(({ names, value }) => {
    if (value === null) return [];
    const patterns = names.map((name) => quoted(`${prefix}:${name}`)).join(" | ");
    return [`    ${patterns}) ${reply(value)}; return ;;`];
  });
}

function wordCase({ path, commands, options, argument }: CompletedCommand): string {
  const flags = options.flatMap(({ names }) => names);
  const below = commands.map(({ name }) => name);
  const kind: Kind = argument ?? { words: below };
  const pattern = quoted(path.map((word) => ` ${word}`).join(""));
  return `    ${pattern})
      if [[ $cur == -* ]]; then ${reply({ words: flags })}; else ${reply(kind)}; fi ;;`;
}

function reply(kind: Kind): string {
  if (kind === "file") return 'COMPREPLY=($(compgen -f -- "$cur"))';
  if (kind === "dir") return 'COMPREPLY=($(compgen -d -- "$cur"))';
  if (kind === "any") return "COMPREPLY=()";
  return `COMPREPLY=($(compgen -W ${quoted(kind.words.join(" "))} -- "$cur"))`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
