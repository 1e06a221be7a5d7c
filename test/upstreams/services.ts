import type { Behaviour, FakeUpstream } from "../support/upstreams/fake-upstream.ts";
import { type Size, SMALL } from "../support/upstreams/images.ts";
import { startNative } from "../support/upstreams/native.ts";
import { startOpenai } from "../support/upstreams/openai.ts";
import { DIALECTS, type Dialect } from "../support/upstreams/openai-dialects.ts";
import { startSdapi } from "../support/upstreams/sdapi.ts";

export type ServiceName = "native" | "openai" | "sdapi";

/** A fake service with what a configuration says of it. */
export interface ConfiguredFake {
  fake: FakeUpstream;
  /** Of a provider, without its name and models. */
  entry: object;
  /** A model that the service has. */
  model: string;
}

interface FakeOptions {
  behaviour?: Behaviour | null;
  /** Default: small; null: the size that is asked for. */
  size?: Size | null;
  dialect?: Dialect | undefined;
}

/** Starts a fake of a service that makes images one by one. */
export async function startFake(
  service: ServiceName,
  { behaviour = null, size = SMALL, dialect = DIALECTS.openai }: FakeOptions = {},
): Promise<ConfiguredFake> {
  const started = { native: startNative, openai: () => startOpenai({ dialect }), sdapi: startSdapi };
  const fake = await started[service]();
  fake.size = size;
  fake.setBehaviour(behaviour);
  const type = service;
  if (service === "native") {
    const key = { apiKeyEnv: "NATIVE_API_KEY", keyHeader: "x-goog-api-key" };
    return { fake, entry: { type, baseUrl: fake.url, ...key }, model: "gemini-3-pro-image" };
  }
  if (service === "sdapi") return { fake, entry: { type, baseUrl: fake.url }, model: "v1-5-pruned" };
  const baseUrl = fake.url + dialect.base;
  const speech = { path: dialect.path, apiKeyEnv: "OPENAI_API_KEY", responseFormat: "omit" };
  return { fake, entry: { type, baseUrl, ...speech }, model: dialect.model };
}
