import { expect, it } from "vitest";
import { parseConfig } from "../../src/config/load.ts";
import { providerEntrySchema } from "../../src/contract/provider-entries.ts";
import { Decoding } from "../../src/imaging/decoding.ts";
import { randomIds } from "../../src/kernel/ids.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { FakeClock } from "../support/fake-clock.ts";

it.each(["native", "openai"])(
  "[UNKNOWN-1] an upstream of type %s that is another imgbatch is known by its key, and asked again after a lost answer",
  async (type) => {
    const entry = providerEntrySchema.parse({
      type,
      name: "far",
      baseUrl: "http://127.0.0.1:9",
      apiKeyEnv: "FAR_KEY",
    });
    const { simulate } = parseConfig({}, "test");
    const repeats = async (key: string) => {
      const deps = { clock: new FakeClock(), simulate, secret: () => key, decoding: new Decoding() };
      const [provider] = await createProviders([entry], deps);
      await provider?.close();
      return provider?.upstream?.isRepeatable ?? false;
    };
    expect(await repeats(randomIds.apiKey())).toBe(true);
    expect(await repeats("sk-a-key-of-a-vendor")).toBe(false);
  },
);
