import type { CompletedCommand, CompletedOption, Kind } from "./completed-commands.ts";

/** The completion of fish 3, with the descriptions of commands and options. */
export function fishCompletion(commands: readonly CompletedCommand[]): string {
  const paths = commands.filter(({ path }) => path.length > 0).map(({ path }) => quoted(path.join(" ")));
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
  const start = `complete -c imgbatch -n ${quoted(`__imgbatch_at ${path.join(" ")}`.trim())}`;
  return [
    ...commands.map(({ name, summary }) => `${start} -a ${name} -d ${quoted(summary)}`),
    ...options.map((option) => `${start} ${optionText(option)}`),
    ...(argument === null || argument === "any" ? [] : [`${start} ${argumentText(argument)}`]),
  ];
}

function optionText({ names, description, value }: CompletedOption): string {
  const flags = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const takes = value === null ? [] : ["-r", ...(value === "any" ? ["-f"] : [argumentText(value)])];
  return [...flags, ...takes, `-d ${quoted(description)}`].join(" ");
}

function argumentText(kind: Exclude<Kind, "any">): string {
  if (kind === "file") return "-F";
  if (kind === "dir") return "-f -a '(__fish_complete_directories)'";
  return `-f -a ${quoted(kind.words.join(" "))}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
