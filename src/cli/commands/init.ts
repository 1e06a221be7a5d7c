import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { saving } from "../../client/file-errors.ts";
import { secretVariables } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { programName, programWords, shellWord } from "../../kernel/command-line.ts";
import { didYouMean } from "../../kernel/did-you-mean.ts";
import { makeDirectory, writeFileDurably } from "../../kernel/files.ts";
import { fieldsOf, parseJson } from "../../kernel/json.ts";
import { formatUsd } from "../../kernel/money.ts";
import { packageFile, readVersion } from "../../kernel/package-file.ts";
import { findPreset, type Preset, presetOf, priceOf } from "../../providers/catalogue/catalogue.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import * as option from "../options.ts";
import { upstreamOption } from "./shared-options.ts";

const options = {
  template: option.list({
    flags: "--template <name>",
    description:
      "starter (prompts and configuration), agent (a skill for coding agents), mcp (the file that starts `imgbatch mcp` for them), github, gitlab, script, comfyui, compose, kubernetes or all; may be repeated",
    default: "starter",
    choices: [
      ...["starter", "agent", "mcp", "github", "gitlab", "script"],
      ...["comfyui", "compose", "kubernetes", "all"],
    ],
  }),
  upstream: { ...upstreamOption, description: `write the configuration for ${upstreamOption.description}` },
  force: option.flag({ flags: "--force", description: "replace existing files" }),
};

export const command = defineCommand({
  arguments: [{ name: "[dir]", description: "the directory; without it, this one" }],
  options,
  examples: [
    "imgbatch init",
    "imgbatch init --upstream google",
    "imgbatch init --template github",
    "imgbatch init --template agent",
  ],
  exits: ["conflict", "saving"],
  run,
});

const CONFIG = "imgbatch.config.json";

/** `imgbatch init`: writes the files to start from, and prints the next commands to type. */
async function run({
  arguments: [named = "."],
  options: typed,
  cwd,
  output,
}: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const templates = typed.template.length > 0 ? typed.template : ["starter"];
  const dir = resolve(cwd, named);
  const packaged = filesOf(templates);
  await requireDirectory(dir, named);
  const upstream = await upstreamIn(dir, typed.upstream, packaged.includes(config));
  const files = withUpstream(packaged, upstream);
  const { force } = typed;
  if (upstream !== null && !force) await requireUpstreamIn(dir, files, upstream.name);
  const { written, kept } = await copyTemplates(dir, files, force);
  for (const name of kept) output.note(`${name} exists already and was kept (--force replaces it)`);
  const isOnly = (...names: string[]) => templates.every((name) => names.includes(name));
  // A pipeline names its upstream itself, and has the key as a secret.
  const isPipeline = isOnly("github", "gitlab");
  const program = dirname(packageFile("package.json"));
  const start = programName(dir);
  const submit = `${start} submit prompts.jsonl`;
  const next = isOnly("compose")
    ? [...composeCommands(program), submit]
    : isOnly("kubernetes")
      ? kubernetesCommands(program)
      : isOnly("agent", "mcp")
        ? [`${start} doctor`]
        : isPipeline && upstream !== null
          ? [`${submit} --upstream ${upstream.name} --dry-run`]
          : [`${submit} --dry-run`, submit];
  const { keyVariable = null } = upstream ?? {};
  const secret = keyVariable === null ? "" : `your key as the secret ${keyVariable}, and `;
  const settings = `give the pipeline ${secret}the variable IMGBATCH_PACKAGE, as its file says`;
  // The variable of the key, or the program that must run.
  const preparation = keyVariable === null ? upstream?.preparation : `export ${keyVariable}=<your key>`;
  const first = isPipeline ? settings : isOnly("kubernetes") ? PLACES : (preparation ?? null);
  if (first !== null) output.note(`first: ${first}`);
  output.note("next:");
  if (dir !== resolve(cwd)) next.unshift(`cd ${shellWord(named)}`);
  for (const line of next) output.note(`  ${line}`);
  return { json: { directory: dir, written, kept, first, next }, lines: written };
}

/** What makes the images, as files name it. `preset`: its configuration is written; null: it stands in the file already. */
interface NamedUpstream extends Pick<Preset, "name" | "title" | "keyVariable" | "preparation"> {
  preset: Preset | null;
}

/**
 * Returns the upstream of `--upstream`: a provider of the configuration in the directory, else a preset; null when none is
 * named. `isWritten`: the configuration is among the files to write. Throws `USAGE` for a name that is not known.
 */
async function upstreamIn(
  dir: string,
  name: string | undefined,
  isWritten: boolean,
): Promise<NamedUpstream | null> {
  if (name === undefined) return null;
  const known = findPreset(name);
  if (known !== undefined && isWritten) return { ...known, preset: known };
  const { readConfig } = await import("../../config/load.ts");
  const [entry] = readConfig({ cwd: dir, upstream: name, replay: null }).config.providers;
  if (entry === undefined || entry.type === "replay") return null;
  const { title = entry.name, preparation = null } = presetOf(entry) ?? {};
  const [keyVariable = null] = secretVariables(entry);
  const preset = known?.name === entry.name ? known : null;
  return { name: entry.name, title, keyVariable, preparation, preset };
}

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

/**
 * The files with the configuration of an upstream in place of the example, and pipelines that keep what it has made. Throws
 * `USAGE` for a pipeline with an upstream that only this machine has.
 */
function withUpstream(files: readonly TemplateFile[], upstream: NamedUpstream | null): TemplateFile[] {
  if (upstream === null) return [...files];
  const isPipeline = (file: TemplateFile) => "withUpstream" in file;
  const pipelines = files.filter(isPipeline);
  if (pipelines.length > 0 && upstream.keyVariable === null) {
    const message = `--upstream ${upstream.name}: no pipeline elsewhere can reach it; use an upstream with a key.`;
    throw new ImgbatchError("USAGE", message, { param: "--upstream" });
  }
  const { name, title, keyVariable, preset } = upstream;
  const others = files
    .filter(({ target }) => target !== CONFIG)
    .map((file) =>
      "withUpstream" in file && file.withUpstream !== undefined
        ? { ...file, source: file.withUpstream, values: { upstream: name, title, key: keyVariable ?? "" } }
        : file,
    );
  // A pipeline names its upstream itself.
  const isOfPipeline = (file: TemplateFile) => isPipeline(file) || [prompts, githubCheck].includes(file);
  if (pipelines.length > 0 && files.every(isOfPipeline)) return others;
  return preset === null ? others : [...others, { target: CONFIG, text: upstreamConfigText(preset) }];
}

/** Throws `FILE_EXISTS` if a pipeline or a configuration is here, and would be kept, that does not name the upstream. */
async function requireUpstreamIn(dir: string, files: readonly TemplateFile[], name: string) {
  for (const { target } of files.filter((file) => "withUpstream" in file || file.target === CONFIG)) {
    const text = await readFile(join(dir, target), "utf8").catch(() => null);
    if (text === null || new RegExp(`[\\s="]${name}(?![\\w-])`).test(text)) continue;
    const [, other] = /(?:--upstream[ =]|"preset": ")([\w-]+)/.exec(text) ?? [];
    const whose = other === undefined ? "does not name" : `is for ${other}, not`;
    const message = `${target} exists already and ${whose} ${name}. Nothing was written.`;
    // Not --force, which would replace the prompts, too.
    const advice =
      "change the upstream and its key in that file, or move it away and run the same command again";
    throw new ImgbatchError("FILE_EXISTS", message, { advice });
  }
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

/**
 * Copies templates into a directory, and creates it if it is missing. Keeps existing files, unless `force` is set.
 * Existence is checked by the write itself, so a file that appears meanwhile is kept too. Throws `SAVE_FAILED`.
 */
async function copyTemplates(
  dir: string,
  files: readonly TemplateFile[],
  force: boolean,
): Promise<{ written: string[]; kept: string[] }> {
  const written: string[] = [];
  const kept: string[] = [];
  for (const file of files) {
    const { target, isExecutable, onlyBelow } = file;
    const path = join(dir, target);
    if (onlyBelow !== undefined && (await stat(join(dir, onlyBelow)).catch(() => null)) === null) continue;
    if ("change" in file) {
      if (await saving(path, () => changeFile(path, (before) => file.change(before, dir))))
        written.push(target);
      continue;
    }
    const text = "text" in file ? file.text : await readTemplate(file, dir);
    const mode = isExecutable ? 0o755 : 0o644;
    const isNew = await saving(path, async () => {
      await makeDirectory(dirname(path));
      if (!force) return writeNew(path, text, mode);
      await writeFileDurably(path, text, { mode });
      await chmod(path, mode);
      return true;
    });
    (isNew ? written : kept).push(target);
  }
  return { written, kept };
}

/** Returns a template of the package, with its values and the package's version. A skill has commands for its directory. */
async function readTemplate({ source, values }: PackagedFile, dir: string): Promise<string> {
  const text = await readFile(packageFile(`templates/${source}`), "utf8");
  const known: PackagedFile["values"] = { version: readVersion(), ...values };
  const filled = text.replaceAll(/\{\{(\w+)\}\}/g, (slot, name: string) => known[name] ?? slot);
  if (!source.startsWith("skill/")) return filled;
  return filled.replaceAll(/(?<=^|`)imgbatch (?=[a-z-])/gm, () => `${programName(dir)} `);
}

/** Returns false if the name is taken, even by a link whose target is missing. */
async function writeNew(path: string, text: string, mode: number): Promise<boolean> {
  try {
    await writeFile(path, text, { flag: "wx", mode });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

/** Changes a file, and creates it if it is missing. Returns false if it stays as it is. */
async function changeFile(path: string, change: (before: string) => string | null): Promise<boolean> {
  const before = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return "";
    throw error;
  });
  const after = change(before);
  if (after === null) return false;
  await makeDirectory(dirname(path));
  // Through a link to the file of another program.
  await writeFile(path, after);
  return true;
}

/** Adds lines to the end of a text. Null if it has them already. */
const withLines = (lines: string) => (before: string) => {
  if (before.includes(lines)) return null;
  return `${before}${before === "" ? "" : before.endsWith("\n") ? "\n" : "\n\n"}${lines}`;
};

/** Adds `imgbatch mcp` to the servers of an agent. Null if it is there already, or the text is not such a file. */
function withMcpServer(before: string, dir: string): string | null {
  let file: unknown;
  try {
    file = parseJson(before || "{}");
  } catch {
    return null;
  }
  const { mcpServers = {}, ...others } = fieldsOf(file) ?? {};
  const servers = fieldsOf(mcpServers);
  if (fieldsOf(file) === null || servers === null || "imgbatch" in servers) return null;
  const [command, ...words] = programWords(dir);
  // Nobody can answer npx. It may fetch again what it has fetched, and never what was installed here and is gone.
  const isFetched = /[\\/]_npx[\\/]/.test(process.argv[1] ?? "");
  const answer = command === "npx" ? [isFetched ? "--yes" : "--no"] : [];
  // Without --max-cost: the person who adds it agrees to the total.
  const imgbatch = { command, args: [...answer, ...words, "mcp"] };
  return `${JSON.stringify({ ...others, mcpServers: { ...servers, imgbatch } }, null, 2)}\n`;
}

interface PackagedFile {
  /** The name below `templates/`. */
  source: string;
  /** The same with an upstream, whose key is a secret of the pipeline. */
  withUpstream?: string;
  /** For the `{{name}}` slots of the template. */
  values?: Readonly<Record<string, string>>;
}

/** A file to write: one of the package, a text, or what is there with a change. */
type TemplateFile = {
  /** The path below the chosen directory, with `/`. */
  target: string;
  isExecutable?: true;
  /** Written only if this folder exists. */
  onlyBelow?: string;
} & (PackagedFile | { text: string } | { change: (before: string, dir: string) => string | null });

const prompts: TemplateFile = { source: "prompts.jsonl", target: "prompts.jsonl" };
const config: TemplateFile = { source: "imgbatch.config.json", target: "imgbatch.config.json" };
const github: TemplateFile = {
  source: "github-actions.yml",
  withUpstream: "github-actions-upstream.yml",
  target: ".github/workflows/images.yml",
};
const githubCheck: TemplateFile = {
  source: "github-actions-check.yml",
  target: ".github/workflows/images-check.yml",
};
const gitlab: TemplateFile = {
  source: "gitlab-ci.yml",
  withUpstream: "gitlab-ci-upstream.yml",
  target: ".gitlab-ci.yml",
};
const script: TemplateFile = { source: "make-images.sh", target: "make-images.sh", isExecutable: true };
const comfyui: TemplateFile = { source: "comfyui.mjs", target: "comfyui.mjs", isExecutable: true };
const compose: TemplateFile = { source: "compose.yaml", target: "compose.yaml" };
const kubernetes: readonly TemplateFile[] = [
  { source: "Dockerfile", target: "kubernetes/Dockerfile" },
  { source: "kubernetes/imgbatch.yaml", target: "kubernetes/imgbatch.yaml" },
  { source: "kubernetes/scaling.yaml", target: "kubernetes/scaling.yaml" },
];
const workflow: TemplateFile = { source: "comfyui-workflow.json", target: "comfyui-workflow.json" };
const SKILL = "skills/imgbatch/SKILL.md";
const skills: readonly TemplateFile[] = [
  { source: "skill/SKILL.md", target: `.agents/${SKILL}` },
  { source: "skill/SKILL.md", target: `.claude/${SKILL}`, onlyBelow: ".claude" },
  {
    target: "AGENTS.md",
    change: withLines(
      [
        "## Images",
        `Make images with \`imgbatch\`, which makes, resumes and verifies many at once: read \`.agents/${SKILL}\` first.`,
        "Agree to pay for images (`--max-cost`) only with an amount that a person has named.",
        "",
      ].join("\n"),
    ),
  },
];
const mcp: TemplateFile = { target: ".mcp.json", change: withMcpServer };

/** The files of each template. They work together in an empty directory. */
const TEMPLATES: Readonly<Record<string, readonly TemplateFile[]>> = {
  starter: [prompts, config],
  agent: skills,
  mcp: [mcp],
  github: [prompts, github, githubCheck],
  gitlab: [prompts, gitlab],
  script: [prompts, script],
  comfyui: [prompts, comfyui, workflow],
  compose: [prompts, compose],
  kubernetes,
  all: [
    ...[prompts, config, github, githubCheck, gitlab, script, comfyui, workflow],
    ...[compose, ...kubernetes, ...skills, mcp],
  ],
};

/**
 * Returns the commands that start what `compose.yaml` describes, with this very program and secrets of its own, and that
 * lead the commands of this shell to it. A name alone would be looked up in the registry, where anybody may own it.
 */
const composeCommands = (program: string): string[] => [
  String.raw`printf 'IMGBATCH_PACKAGE=./%s\n' "$(npm pack --silent --ignore-scripts ${shellWord(program)})" > .env`,
  String.raw`printf 'PGPASSWORD=%s\nAWS_SECRET_ACCESS_KEY=%s\n' "$(openssl rand -hex 16)" "$(openssl rand -hex 16)" >> .env`,
  "docker compose up --build --detach --wait",
  "export IMGBATCH_BASE_URL=http://localhost:8787 IMGBATCH_API_KEY=$(docker compose run --rm -T admin keys create)",
];

const PLACES =
  "write your image, database, bucket and URL into kubernetes/imgbatch.yaml, and the secrets into secret.env";

/** Returns the commands that bring what `imgbatch.yaml` describes to a cluster, with this very program. */
const kubernetesCommands = (program: string): string[] => [
  `IMAGE=registry.example.com/imgbatch:${readVersion()}`,
  `PACKAGE=$(npm pack --silent --ignore-scripts --pack-destination kubernetes ${shellWord(program)})`,
  'docker build --build-arg "IMGBATCH_PACKAGE=./$PACKAGE" --tag "$IMAGE" kubernetes && docker push "$IMAGE"',
  "kubectl create secret generic imgbatch-secrets --from-env-file=secret.env",
  "kubectl apply --filename kubernetes/imgbatch.yaml",
  "kubectl rollout status deployment/imgbatch-api",
  "kubectl exec deployment/imgbatch-api -- imgbatch admin keys create --config /etc/imgbatch/imgbatch.config.json",
];

/**
 * Returns the text of an `imgbatch.config.json`, with comments, whose images come from an upstream. It names the preset, so
 * that models and prices are those of the program, also of later ones.
 */
function upstreamConfigText(preset: Preset): string {
  const { name, title, keyVariable, preparation, models } = preset;
  const priced = models.filter((model) => priceOf(model) !== null);
  const lines = [
    `The images come from ${title}.`,
    ...(keyVariable === null
      ? []
      : [`The key is never in this file: it is in the environment variable ${keyVariable}.`]),
    ...(preparation === null ? [] : [`Before the first run: ${preparation}.`]),
    "`imgbatch schema config` prints every key there is; keys that are not known are errors.",
  ];
  return [
    ...lines.map((line) => `// ${line}`),
    "{",
    ...(priced.length === 0
      ? [
          '  // Say what an image costs in US dollars, or add "free": true to the provider if it costs nothing.',
          `  // "models": [{ "id": ${JSON.stringify(models[0]?.id)}, "prices": { "1K": 0.01 } }],`,
        ]
      : pricesOf(preset, priced)),
    '  // The preset has address, models and prices. What you write beside it wins, such as "concurrency": 8.',
    `  "providers": [{ "preset": ${JSON.stringify(name)} }],`,
    "}",
    "",
  ].join("\n");
}

/** The prices of the day as comments: `models` of the file would keep them for ever. */
function pricesOf({ provider, isOfJobs }: Preset, priced: Preset["models"]): string[] {
  if (provider.free) return ["  // It runs on your own machine: images cost nothing."];
  const share = (usd: number, jobPrice = 1) => formatUsd(Math.round(usd * jobPrice * 1e6));
  const sources = new Set(priced.flatMap(({ source }) => source ?? []));
  return [
    "  // The first model is the default of `imgbatch submit`. Prices of an image when this file was made:",
    ...priced.map((model) => {
      const { id, sizes, jobPrice, asOf } = model;
      const prices = sizes.map((size) => {
        const usd = priceOf(model, { size });
        return usd === null ? [] : `${size} ${share(usd, isOfJobs ? (jobPrice ?? 1) : 1)}`;
      });
      return `  //   ${id}: ${prices.flat().join(", ")} (${asOf})`;
    }),
    ...[...sources].map((source) => `  // Check them: ${source}.`),
  ];
}
