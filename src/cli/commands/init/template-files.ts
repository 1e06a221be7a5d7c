/** A file to write: one of the package, or a text. */
export type TemplateFile = {
  /** From the directory on, with `/`. */
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

/** Every template, with what it needs to work in an empty directory. */
export const TEMPLATES: Readonly<Record<string, readonly TemplateFile[]>> = {
  starter: [prompts, config],
  github: [prompts, github],
  gitlab: [prompts, gitlab],
  script: [prompts, script],
  all: [prompts, config, github, gitlab, script],
};
