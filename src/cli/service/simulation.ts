import { parseConfig } from "../../config/load.ts";
import type { Config } from "../../config/schema.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { parseDuration } from "../../kernel/durations.ts";

/** Applies a text such as `latency=2s,fail=0.1,seed=7` over the configuration. Throws `USAGE` for any other form. */
export function withSimulation(config: Config, spec: string | undefined): Config {
  if (spec === undefined) return config;
  const simulate: Record<string, number> = { ...config.simulate };
  for (const pair of spec.split(",")) {
    const [name = "", value = ""] = pair.split("=", 2);
    if (name === "latency") simulate.latencyMs = readLatency(value);
    else if (name === "fail" || name === "seed") simulate[name] = value === "" ? Number.NaN : Number(value);
    else throw usage(`--simulate: ${JSON.stringify(name)}: use latency, fail or seed`);
  }
  try {
    return parseConfig({ ...config, simulate }, "--simulate");
  } catch (error) {
    throw usage(error instanceof Error ? error.message : "--simulate is invalid");
  }
}

function readLatency(value: string): number {
  const ms = parseDuration(value);
  if (ms !== null) return ms;
  throw usage(`--simulate: latency ${JSON.stringify(value)}: write a time such as 500ms or 2s`);
}

function usage(message: string): ImgbatchError {
  return new ImgbatchError("USAGE", message, { param: "--simulate" });
}
