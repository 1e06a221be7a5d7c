import { PRESETS, type UpstreamName, upstreamConfig } from "../../../config/presets.ts";

/** Returns the text of an `imgbatch.config.json`, with comments, whose images come from an upstream. */
export function upstreamConfigText(name: UpstreamName): string {
  const { title, keyVariable, preparation, priceSource, batchDiscount = 1 } = PRESETS[name];
  const { models, groups, providers } = upstreamConfig(name);
  const key =
    keyVariable === null
      ? []
      : [`The key is never in this file: it is in the environment variable ${keyVariable}.`];
  return [
    `// The images come from ${title}.`,
    ...[...key, ...(preparation === null ? [] : [`Before the first run: ${preparation}.`])].map(comment),
    "// `imgbatch schema config` prints every key there is; keys that are not known are errors.",
    "{",
    ...list("models", models, [
      "The first is the default of `imgbatch submit`. Prices are US dollars for one image.",
      `${priceSource}.`,
    ]),
    ...list("groups", groups, [
      batchDiscount === 1
        ? "An image of a batch costs as much as any other: the upstream has no discount."
        : "An image of a batch costs this share of the price, as the upstream charges for its batch jobs.",
    ]),
    ...list("providers", providers, []),
    "}",
    "",
  ].join("\n");
}

const comment = (line: string) => `// ${line}`;

function list(key: string, entries: readonly object[], comments: readonly string[]): string[] {
  return [
    ...comments.map((line) => `  ${comment(line)}`),
    `  ${JSON.stringify(key)}: [`,
    ...entries.map((entry) => `    ${onOneLine(entry)},`),
    "  ],",
  ];
}

function onOneLine(value: object): string {
  return JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
}
