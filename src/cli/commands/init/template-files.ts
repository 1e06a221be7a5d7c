import { shellWord } from "../../../runs/reports/run-report.ts";

/** A file to write: one of the package, or a text. */
export type TemplateFile = {
  /** The path below the chosen directory, with `/`. */
  target: string;
  isExecutable?: true;
} & (
  | {
      /** The name below `templates/`. */
      source: string;
    }
  | { text: string }
);

const prompts: TemplateFile = { source: "prompts.jsonl", target: "prompts.jsonl" };
const config: TemplateFile = { source: "imgbatch.config.json", target: "imgbatch.config.json" };
const github: TemplateFile = { source: "github-actions.yml", target: ".github/workflows/images.yml" };
const gitlab: TemplateFile = { source: "gitlab-ci.yml", target: ".gitlab-ci.yml" };
const script: TemplateFile = { source: "make-images.sh", target: "make-images.sh", isExecutable: true };
const comfyui: TemplateFile = { source: "comfyui.mjs", target: "comfyui.mjs", isExecutable: true };
const compose: TemplateFile = { source: "compose.yaml", target: "compose.yaml" };
const workflow: TemplateFile = { source: "comfyui-workflow.json", target: "comfyui-workflow.json" };

/** The files of each template. They work together in an empty directory. */
export const TEMPLATES: Readonly<Record<string, readonly TemplateFile[]>> = {
  starter: [prompts, config],
  github: [prompts, github],
  gitlab: [prompts, gitlab],
  script: [prompts, script],
  comfyui: [prompts, comfyui, workflow],
  compose: [prompts, compose],
  all: [prompts, config, github, gitlab, script, comfyui, workflow, compose],
};

/**
 * Returns the commands that start what `compose.yaml` describes, with this very program and secrets of its own, and that
 * lead the commands of this shell to it. A name alone would be looked up in the registry, where anybody may own it.
 */
export const composeCommands = (program: string): string[] => [
  String.raw`printf 'IMGBATCH_PACKAGE=./%s\n' "$(npm pack --silent --ignore-scripts ${shellWord(program)})" > .env`,
  String.raw`printf 'PGPASSWORD=%s\nAWS_SECRET_ACCESS_KEY=%s\n' "$(openssl rand -hex 16)" "$(openssl rand -hex 16)" >> .env`,
  "docker compose up --build --detach --wait",
  "export IMGBATCH_BASE_URL=http://localhost:8787 IMGBATCH_API_KEY=$(docker compose run --rm -T admin keys create)",
];
