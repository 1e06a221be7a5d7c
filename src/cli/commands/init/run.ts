import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { PRESETS, UPSTREAM_NAMES, type UpstreamName } from "../../../config/presets.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { didYouMean } from "../../../kernel/did-you-mean.ts";
import { packageFile } from "../../../kernel/files/package-file.ts";
import { shellWord } from "../../../runs/reports/run-report.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { choiceOption, flagOption } from "../../command-line/option-values.ts";
import { copyTemplates } from "./copy-templates.ts";
import { composeCommands, TEMPLATES, type TemplateFile } from "./template-files.ts";
import { upstreamConfigText } from "./upstream-config-text.ts";

const CONFIG = "imgbatch.config.json";
const SUBMIT = "imgbatch submit prompts.jsonl";

/** `imgbatch init`: writes the files to start from, and prints the next commands to type. */
export const run: RunCommand = async ({ arguments: [named = "."], options, cwd, output }) => {
  const upstream = choiceOption(options, "upstream", UPSTREAM_NAMES) ?? null;
  const templates = Array.isArray(options.template) ? options.template.map(String) : ["starter"];
  const files = withUpstream(filesOf(templates), upstream);
  const dir = resolve(cwd, named);
  await requireDirectory(dir, named);
  const { written, kept } = await copyTemplates(dir, files, flagOption(options, "force"));
  for (const name of kept) output.note(`${name} exists already and was kept (--force replaces it)`);
  const next = templates.every((name) => name === "compose")
    ? [...composeCommands(dirname(packageFile("package.json"))), SUBMIT]
    : [`${SUBMIT} --dry-run`, SUBMIT];
  const enter = dir === resolve(cwd) ? [] : [`cd ${shellWord(named)}`];
  const first = upstream === null ? null : preparationOf(upstream);
  if (first !== null) output.note(`first: ${first}`);
  output.note("next:");
  for (const line of [...enter, ...next]) output.note(`  ${line}`);
  return {
    exitCode: EXIT_CODES.ok.code,
    json: { directory: dir, written, kept, first, next: [...enter, ...next] },
    lines: written,
  };
};

/** Throws `USAGE` if a file has the name of the directory or of a parent directory. */
async function requireDirectory(dir: string, named: string): Promise<void> {
  const isFile = await stat(dir).then(
    (facts) => !facts.isDirectory(),
    (error: NodeJS.ErrnoException) => error.code === "ENOTDIR",
  );
  if (!isFile) return;
  const message = `${JSON.stringify(named)} cannot be used as a directory: a file has this name.`;
  throw new ImgbatchError("USAGE", message, { advice: "name another directory; nothing was written" });
}

/** The files with the configuration of an upstream in place of the example. */
function withUpstream(files: readonly TemplateFile[], upstream: UpstreamName | null): TemplateFile[] {
  if (upstream === null) return [...files];
  const others = files.filter(({ target }) => target !== CONFIG);
  return [...others, { target: CONFIG, text: upstreamConfigText(upstream) }];
}

/** The step before the first run: the variable of the key, or the program that must run. */
function preparationOf(upstream: UpstreamName): string | null {
  const { keyVariable, preparation } = PRESETS[upstream];
  return keyVariable === null ? preparation : `export ${keyVariable}=<your key>`;
}

/** The files of the named templates, each once. */
function filesOf(names: readonly string[]): TemplateFile[] {
  const files = names.flatMap((name) => {
    const found = Object.hasOwn(TEMPLATES, name) ? TEMPLATES[name] : undefined;
    if (found !== undefined) return found;
    const known = Object.keys(TEMPLATES);
    const meant = didYouMean(name, known);
    const advice = meant === null ? `use ${known.join(", ")}` : `did you mean ${meant}?`;
    throw new ImgbatchError("USAGE", `--template ${JSON.stringify(name)}: ${advice}`, {
      param: "--template",
    });
  });
  return [...new Set(files)];
}
