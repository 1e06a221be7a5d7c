import { expect, it, onTestFinished } from "vitest";
import { Chain, model } from "../support/upstreams/chain.ts";
import { resetAfter } from "../support/upstreams/hostile.ts";
import { startFake } from "../upstreams/services.ts";
import { areInstalled, type Library, startSdk } from "./sdk.ts";

/** A response or an interaction. */
interface View {
  id: string;
}

/** A service in front of an upstream that costs money, and a client of each vendor's library. */
async function openChain(service: "native" | "openai", library: Library) {
  const upstream = await startFake(service);
  onTestFinished(() => upstream.fake.close());
  const chain = await Chain.startHere({
    vendor: { preset: "google" },
    limits: { unknownOutcome: "stop" },
    models: [model(upstream.model)],
    providers: [{ name: "painter", ...upstream.entry, models: [upstream.model] }],
  });
  onTestFinished(() => chain.close());
  const isOpenai = library.startsWith("openai");
  const address = isOpenai ? { baseURL: `${chain.url}/v1` } : { httpOptions: { baseUrl: chain.url } };
  const sdk = startSdk(library, { apiKey: chain.key, ...address });
  onTestFinished(() => sdk.close());
  const create = (input: string, previous?: string) => {
    if (isOpenai) {
      const tools = [{ type: "image_generation", model: upstream.model }];
      const body = { model: "gpt-5.5", input, tools, previous_response_id: previous };
      return sdk.call<View>("responses.create", body);
    }
    const body = { model: upstream.model, input, previous_interaction_id: previous };
    return sdk.call<View>("interactions.create", body);
  };
  return { ...upstream, create };
}

for (const library of ["openai-7", "genai-3"] as const)
  for (const service of ["native", "openai"] as const) {
    it.skipIf(!areInstalled)(
      `[SDK-16] ${library} edits over two turns at an upstream of type ${service}`,
      async () => {
        const { fake, create } = await openChain(service, library);
        const first = await create("a red fox");
        expect(first.error).toBeUndefined();
        const second = await create("make it blue", first.value.id);
        expect(second.error).toBeUndefined();
        const asked = fake.requests.filter(({ kind }) => kind === "images");
        expect(asked).toHaveLength(2);
        // The first picture went with the second request.
        expect(asked[1]?.bytes.length).toBeGreaterThan((asked[0]?.bytes.length ?? 0) + 200);
        expect(fake.billed()).toBe(2);
      },
    );

    it.skipIf(!areInstalled)(
      `[SDK-16] ${library} asks an upstream of type ${service} once when the answer to a paid request is lost`,
      async () => {
        const { fake, create } = await openChain(service, library);
        fake.setBehaviour(resetAfter({ made: true }));
        const { error } = await create("a red fox");
        expect(error).toMatchObject({ status: 424 });
        expect(fake.billed()).toBe(1);
      },
    );
  }
