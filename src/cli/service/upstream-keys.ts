import { PRESETS, UPSTREAM_NAMES, upstreamConfig } from "../../config/presets.ts";
import type { Config } from "../../config/schema.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import type { ProviderEntry } from "../../contract/provider-entries.ts";
import { secretVariables } from "../../contract/provider-identity.ts";
import { secretOf } from "../../environment.ts";
import { isLoopback } from "../../kernel/loopback.ts";

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

/**
 * Throws `API_KEY_REQUIRED` if an upstream would get a secret of the environment and only the configuration file of the
 * working directory names its address: a stranger may have written that file. Known vendors with their own variables, and
 * addresses of this machine, need no agreement.
 */
export async function requireNamedAddresses({ providers }: Pick<Config, "providers">): Promise<void> {
  const { parseConfig } = await import("../../config/load.ts");
  const known = new Set(
    UPSTREAM_NAMES.flatMap((name) => parseConfig(upstreamConfig(name), name).providers.flatMap(secretTarget)),
  );
  for (const entry of providers) {
    const [target] = secretTarget(entry);
    if (target === undefined || known.has(target) || !("baseUrl" in entry)) continue;
    if (isLoopback(new URL(entry.baseUrl).hostname)) continue;
    const message = `No secret is sent to ${entry.baseUrl}: only the imgbatch.config.json of this directory names it. Nothing was sent.`;
    const advice = "if you know this address, name the file: --config imgbatch.config.json";
    throw new ImgbatchError("API_KEY_REQUIRED", message, { advice });
  }
}

/** Which secrets an entry sends where, as one text; empty when it sends none. */
function secretTarget(entry: ProviderEntry): string[] {
  const names = secretVariables(entry).filter((name) => secretOf(name) !== null);
  return names.length > 0 && "baseUrl" in entry ? [JSON.stringify([entry.baseUrl, ...names])] : [];
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
