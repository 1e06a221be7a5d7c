import type { CommandSpec } from "../../command-line/command-spec.ts";

export function completion(table: () => readonly CommandSpec[]): CommandSpec {
  return {
    name: "completion",
    summary: "print the completion script of a shell: bash, zsh or fish",
    arguments: [{ name: "<shell>", description: "bash, zsh or fish", choices: ["bash", "zsh", "fish"] }],
    examples: ["imgbatch completion fish | source", "source <(imgbatch completion bash)    # in ~/.bashrc"],
    json: false,
    load: async () => {
      const { completionOf } = await import("./run.ts");
      return { run: completionOf(table()) };
    },
  };
}
