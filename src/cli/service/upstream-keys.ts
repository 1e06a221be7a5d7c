import { PRESETS, UPSTREAM_NAMES } from "../../config/presets.ts";
import type { Config } from "../../config/schema.ts";
import { secretVariables } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { secretOf } from "../../environment.ts";

/** Throws `API_KEY_REQUIRED`, naming the variables, if no provider can make images because each lacks its key. */
export function requireKeys({ providers }: Pick<Config, "providers">): void {
  const missing = providers.map((entry) => secretVariables(entry).filter((name) => secretOf(name) === null));
  if (providers.length === 0 || missing.some((names) => names.length === 0)) return;
  const names = [...new Set(missing.flat())];
  const whose = providers.map(({ name }) => name).join(" or ");
  const are = names.length === 1 ? "is" : "are";
  const message = `${names.join(" and ")} ${are} not set: images by ${whose} need ${names.length === 1 ? "it" : "them"}. Nothing was sent.`;
  const advice = `${names.map((name) => `export ${name}=<your key>`).join("; ")}, then run the same command again`;
  throw new ImgbatchError("API_KEY_REQUIRED", message, { advice });
}

/** Returns how to get real images with a key that is in the environment; null when there is no well-known one. */
export function keyAdvice(): string | null {
  for (const name of UPSTREAM_NAMES) {
    const { keyVariable } = PRESETS[name];
    if (keyVariable !== null && secretOf(keyVariable) !== null)
      return `${keyVariable} is set: add --upstream ${name} for real images`;
  }
  return null;
}
