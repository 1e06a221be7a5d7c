import type { CompletedCommand, CompletedOption, Kind } from "./completed-commands.ts";

/** The completion of zsh, with the descriptions of commands and options. */
export function zshCompletion(commands: readonly CompletedCommand[]): string {
  return `#compdef imgbatch
# zsh completion of imgbatch. In ~/.zshrc, after compinit: source <(imgbatch completion zsh)
_imgbatch() {
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _imgbatch_program
}
${commands.map(functionOf).join("\n")}
if [ "$funcstack[1]" = "_imgbatch" ]; then _imgbatch "$@"; else compdef _imgbatch imgbatch; fi
`;
}

function functionOf({ path, commands, options, argument }: CompletedCommand): string {
  const specs = options.flatMap(optionSpecs);
  const name = functionName(path);
  if (commands.length === 0) {
    const rest = argument === null ? [] : [`'*: :${action(argument)}'`];
    return `${name}() {\n  _arguments -s \\\n    ${[...specs, ...rest].join(" \\\n    ")}\n}`;
  }
  const described = commands.map((below) => quoted(`${withoutColons(below.name)}:${below.summary}`));
  const cases = commands.map((below) => `      ${below.name}) ${functionName([...path, below.name])} ;;`);
  return `${name}() {
  local -a commands
  local state line
  _arguments -C \\
    ${[...specs, "'1: :->command'", "'*:: :->rest'"].join(" \\\n    ")}
  case $state in
    command)
      commands=(
        ${described.join("\n        ")}
      )
      _describe command commands ;;
    rest)
      case $line[1] in
${cases.join("\n")}
      esac ;;
  esac
}`;
}

function functionName(path: readonly string[]): string {
  return `_imgbatch_${path.length === 0 ? "program" : path.join("_")}`;
}

function optionSpecs({ names, description, value }: CompletedOption): string[] {
  const text = description.replace(/[[\]:\\]/g, (c) => `\\${c}`);
  const after = value === null ? "" : `: :${action(value)}`;
  return names.map((name) => quoted(`*${name}[${text}]${after}`));
}

function action(kind: Kind): string {
  if (kind === "file") return "_files";
  if (kind === "dir") return "_files -/";
  return kind === "any" ? " " : `(${kind.words.join(" ")})`;
}

function withoutColons(text: string): string {
  return text.replaceAll(":", "\\:");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
