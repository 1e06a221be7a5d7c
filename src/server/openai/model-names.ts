import type { ModelEntry, Offers } from "../../domain/models.ts";

/** Names that OpenAI's clients have built in. Without a configuration they stand for the first model. */
const BUILT_IN = ["gpt-image-*", "dall-e-*", "chatgpt-image-latest"];

/** Names with the ids of the models that they stand for. A `*` at the end of a name stands for any text. */
export type ModelNames = Readonly<Record<string, string>>;

/**
 * The model of a request to OpenAI's API, of those that the caller can use: the one with this id, else the one that the
 * name stands for, the longest name first; the first model without a name. Null when the name is not known.
 */
export function modelNamed(
  name: string | null,
  models: readonly ModelEntry[],
  names: ModelNames,
): ModelEntry | null {
  const byId = (id: string) => models.find((model) => model.id === id) ?? null;
  if (name === null) return models[0] ?? null;
  const own = byId(name);
  if (own !== null) return own;
  const matching = Object.keys(names).filter((known) => stands(known, name));
  const [best] = matching.sort((a, b) => Number(b === name) - Number(a === name) || b.length - a.length);
  if (best !== undefined) return byId(names[best] ?? "");
  return BUILT_IN.some((known) => stands(known, name)) ? (models[0] ?? null) : null;
}

/** The same; the models that a provider serves now are the first ones. */
export function servedModelNamed(
  name: string | null,
  models: readonly ModelEntry[],
  offers: Pick<Offers, "first">,
  names: ModelNames,
): ModelEntry | null {
  const isServed = ({ id }: ModelEntry) => offers.first(id) !== null;
  const servedFirst = [...models.filter(isServed), ...models.filter((model) => !isServed(model))];
  return modelNamed(name, servedFirst, names);
}

/** The names that stand for a model in whole, without those that are the id of another one. */
export function wholeNames(
  models: readonly ModelEntry[],
  names: ModelNames,
): { name: string; model: ModelEntry }[] {
  const whole = new Set([...Object.keys(names), ...BUILT_IN].filter((name) => !name.endsWith("*")));
  return [...whole].flatMap((name) => {
    const model = modelNamed(name, models, names);
    return model === null || model.id === name ? [] : [{ name, model }];
  });
}

function stands(known: string, name: string): boolean {
  return known.endsWith("*") ? name.startsWith(known.slice(0, -1)) : known === name;
}
