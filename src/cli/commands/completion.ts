import { ImgbatchError } from "../../contract/errors.ts";
import type { CommandDetails, CommandSpec } from "../command.ts";
import { globalTable, namesIn, type OptionSpec } from "../options.ts";

const SHELLS = { bash: bashCompletion, zsh: zshCompletion, fish: fishCompletion };

/** `imgbatch completion`: prints the completion script of a shell for all commands. */
export function completionOf(loadAll: () => Promise<readonly CommandSpec[]>): CommandDetails {
  return {
    arguments: [{ name: "<shell>", description: "bash, zsh or fish", choices: ["bash", "zsh", "fish"] }],
    examples: ["imgbatch completion fish | source", "source <(imgbatch completion bash)    # in ~/.bashrc"],
    json: false,
    run: async ({ arguments: [name = ""] }) => {
      if (!Object.hasOwn(SHELLS, name))
        throw new ImgbatchError("USAGE", `${JSON.stringify(name)}: use ${Object.keys(SHELLS).join(", ")}.`);
      const write = SHELLS[name as keyof typeof SHELLS];
      const text = write(completedCommands(await loadAll()));
      return { json: null, lines: text.trimEnd().split("\n") };
    },
  };
}

/** The values of an option or argument: one of these words, a file, a directory, or any text. */
type Kind = { words: readonly string[] } | "file" | "dir" | "any";

interface CompletedOption {
  /** `--output`, `-o`. */
  names: string[];
  description: string;
  /** Null for an option without a value. */
  value: Kind | null;
}

interface CompletedCommand {
  /** The words that lead to it, such as `admin keys list`; empty for the program itself. */
  path: string[];
  summary: string;
  commands: { name: string; summary: string }[];
  options: CompletedOption[];
  /** Null for a command without arguments. */
  argument: Kind | null;
}

/** Every command of a table with the words that can follow it. The program itself comes first. */
function completedCommands(table: readonly CommandSpec[]): CompletedCommand[] {
  const help: OptionSpec = { flags: "-h, --help", description: "show help" };
  const version: OptionSpec = { flags: "-V, --version", description: "print the version" };
  const visit = (spec: CommandSpec, above: readonly string[]): CompletedCommand[] => {
    const { name, summary, options = {}, arguments: [argument] = [], commands = [], run } = spec;
    const path = [...above, name];
    const own = run === undefined ? [] : [...Object.values(options), ...Object.values(globalTable(spec))];
    const here: CompletedCommand = {
      path,
      summary,
      commands: commands.map(namesOf),
      options: [...own, help].map(toOption),
      argument: argument === undefined ? null : kindOf(argument.name, argument.choices),
    };
    return [here, ...commands.flatMap((child) => visit(child, path))];
  };
  const program: CompletedCommand = {
    path: [],
    summary: "",
    commands: table.map(namesOf),
    options: [...Object.values(globalTable()), help, version].map(toOption),
    argument: null,
  };
  return [program, ...table.flatMap((spec) => visit(spec, []))];
}

function namesOf({ name, summary }: CommandSpec): { name: string; summary: string } {
  return { name, summary };
}

function toOption({ flags, description, suggestions, choices = suggestions }: OptionSpec): CompletedOption {
  const names = namesIn({ flags });
  const [placeholder] = /[<[][^>\]]+[>\]]$/.exec(flags) ?? [];
  const value = placeholder === undefined ? null : kindOf(placeholder, choices);
  return { names, description, value };
}

function kindOf(placeholder: string, choices: readonly string[] | undefined): Kind {
  if (choices !== undefined) return { words: choices };
  if (/\b(file|path|id\|dir|command)/.test(placeholder)) return "file";
  return /\bdir\b/.test(placeholder) ? "dir" : "any";
}

/** The completion of bash 3.2 and later; it needs no other script. */
function bashCompletion(commands: readonly CompletedCommand[]): string {
  const paths = commands
    .filter(({ path }) => path.length > 0)
    .map(({ path }) => shellQuoted(` ${path.join(" ")}`));
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
    const patterns = names.map((name) => shellQuoted(`${prefix}:${name}`)).join(" | ");
    return [`    ${patterns}) ${reply(value)}; return ;;`];
  });
}

function wordCase({ path, commands, options, argument }: CompletedCommand): string {
  const flags = options.flatMap(({ names }) => names);
  const below = commands.map(({ name }) => name);
  const kind: Kind = argument ?? { words: below };
  const pattern = shellQuoted(path.map((word) => ` ${word}`).join(""));
  return `    ${pattern})
      if [[ $cur == -* ]]; then ${reply({ words: flags })}; else ${reply(kind)}; fi ;;`;
}

function reply(kind: Kind): string {
  if (kind === "file") return 'COMPREPLY=($(compgen -f -- "$cur"))';
  if (kind === "dir") return 'COMPREPLY=($(compgen -d -- "$cur"))';
  if (kind === "any") return "COMPREPLY=()";
  return `COMPREPLY=($(compgen -W ${shellQuoted(kind.words.join(" "))} -- "$cur"))`;
}

/** A word of bash or zsh. */
function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The completion of fish 3, with the descriptions of commands and options. */
function fishCompletion(commands: readonly CompletedCommand[]): string {
  const paths = commands.filter(({ path }) => path.length > 0).map(({ path }) => fishWord(path.join(" ")));
  return `# fish completion of imgbatch. In ~/.config/fish/config.fish: imgbatch completion fish | source
function __imgbatch_at
    set -l path
    for word in (commandline -opc)[2..-1]
        test "$word" = --; and return 1
        if contains -- (string join -- " " $path $word) ${paths.join(" ")}
            set -a path $word
        end
    end
    test "$path" = "$argv"
end
complete -c imgbatch -f
complete -c imgbatch -n 'contains -- -- (commandline -opc)' -F
${commands.flatMap(linesOf).join("\n")}
`;
}

function linesOf({ path, commands, options, argument }: CompletedCommand): string[] {
  const start = `complete -c imgbatch -n ${fishWord(`__imgbatch_at ${path.join(" ")}`.trim())}`;
  return [
    ...commands.map(({ name, summary }) => `${start} -a ${name} -d ${fishWord(summary)}`),
    ...options.map((option) => `${start} ${optionText(option)}`),
    ...(argument === null || argument === "any" ? [] : [`${start} ${argumentText(argument)}`]),
  ];
}

function optionText({ names, description, value }: CompletedOption): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const takes = value === null ? [] : ["-r", ...(value === "any" ? ["-f"] : [argumentText(value)])];
  return [...flags, ...takes, `-d ${fishWord(description)}`].join(" ");
}

function argumentText(kind: Exclude<Kind, "any">): string {
  if (kind === "file") return "-F";
  if (kind === "dir") return "-f -a '(__fish_complete_directories)'";
  return `-f -a ${fishWord(kind.words.join(" "))}`;
}

function fishWord(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}

/** The completion of zsh, with the descriptions of commands and options. */
function zshCompletion(commands: readonly CompletedCommand[]): string {
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
  const described = commands.map((below) => shellQuoted(`${withoutColons(below.name)}:${below.summary}`));
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
  return names.map((name) => shellQuoted(`*${name}[${text}]${after}`));
}

function action(kind: Kind): string {
  if (kind === "file") return "_files";
  if (kind === "dir") return "_files -/";
  return kind === "any" ? " " : `(${kind.words.join(" ")})`;
}

function withoutColons(text: string): string {
  return text.replaceAll(":", "\\:");
}
