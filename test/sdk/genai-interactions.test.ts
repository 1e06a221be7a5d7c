import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import type { NativeBody } from "../../src/contract/native-api.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { areInstalled, type Library, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

type View = NativeBody<"Interaction"> & { output_text?: string };
type Part = View["steps"][number]["content"][number];

function pictureOf({ steps }: Pick<View, "steps">): Part {
  return steps.flatMap(({ content }) => content).find(({ type }) => type === "image") ?? { type: "image" };
}

function shapeOf({ data, mime_type: type }: Part) {
  const header = readImageHeader(Buffer.from(data ?? "", "base64"));
  return [type, header?.mimeType, header?.widthPx, header?.heightPx];
}

// The first major has no stable interactions.
for (const library of ["genai-2", "genai-3"] satisfies Library[]) {
  describe.skipIf(!areInstalled)(`Interactions with Google's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService();
      sdk = startSdk(library, { apiKey: service.apiKey, httpOptions: { baseUrl: service.url } });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    const create = async (more: object) => {
      const body = { model: MODEL, input: "a red fox", ...more };
      const { value, error } = await sdk.call<View>("interactions.create", body);
      expect(error).toBeUndefined();
      return value;
    };
    const get = async (id: string | undefined) => (await sdk.call<View>("interactions.get", id)).value;

    it("[SDK-15] makes a picture with words beside it, gets it again and deletes it", async () => {
      const made = await create({});
      expect(made).toMatchObject({
        status: "completed",
        model: MODEL,
        output_text: expect.stringMatching(/\w/),
      });
      expect(shapeOf(pictureOf(made))).toEqual(["image/png", "image/png", 1024, 1024]);
      const { usage } = made;
      expect(usage?.total_tokens).toBe((usage?.total_input_tokens ?? 0) + (usage?.total_output_tokens ?? 0));
      expect((await get(made.id)).steps).toEqual(made.steps);
      expect((await sdk.call("interactions.delete", made.id)).error).toBeUndefined();
      expect((await sdk.call("interactions.get", made.id)).error).toMatchObject({ status: 404 });
    });

    it("[SDK-15] takes today's and the older form of the options", async () => {
      const options = { aspect_ratio: "16:9", image_size: "2K" };
      const image = { type: "image", mime_type: "image/jpeg", ...options };
      for (const form of [
        { response_format: image },
        { response_format: [{ type: "text" }, image] },
        { response_modalities: ["image"], generation_config: { image_config: options } },
      ]) {
        const made = await create(form);
        const type = "response_format" in form ? "image/jpeg" : "image/png";
        expect(shapeOf(pictureOf(made))).toEqual([type, type, 2752, 1536]);
        expect(made.output_text === undefined).toBe(!Array.isArray(form.response_format));
      }
    });

    it("[SDK-15] edits the picture over several turns, and pictures of the user", async () => {
      const data = (await tinyPng()).toString("base64");
      const photo = { type: "image", data, mime_type: "image/png" };
      const first = await create({ input: [{ type: "text", text: "in autumn" }, photo] });
      const second = await create({ input: "make it blue", previous_interaction_id: first.id });
      expect(second.usage?.total_input_tokens).toBeGreaterThan(first.usage?.total_input_tokens ?? 0);
      const input = [
        { type: "user_input", content: [{ type: "text", text: "a fox" }] },
        ...second.steps,
        { type: "user_input", content: [{ type: "text", text: "add a hat" }] },
      ];
      const third = await create({ input, store: false });
      expect(third.id).toBeUndefined();
      expect(shapeOf(pictureOf(third))[2]).toBe(1024);
    });

    it("[SDK-15] makes a picture in the background, and asks until it is there", async () => {
      const begun = await create({ input: "[[delay:300ms]] a fox", background: true });
      expect(begun).toMatchObject({ status: "in_progress", id: expect.any(String) });
      await expect.poll(async () => (await get(begun.id)).status).toBe("completed");
      expect(shapeOf(pictureOf(await get(begun.id)))[1]).toBe("image/png");
      const slow = await create({ input: "[[delay:1h]] a fox", background: true });
      const { value } = await sdk.call<View>("interactions.cancel", slow.id);
      expect(value.status).toBe("cancelled");
      const refused = await create({ input: "[[refuse]] a fox", background: true });
      await expect.poll(async () => (await get(refused.id)).status).toBe("failed");
    });

    it("[SDK-15] reads the events of a stream, also again", async () => {
      type Event = { event_type: string; event_id: string; interaction?: View; delta?: Part };
      const body = { model: MODEL, input: "a red fox", stream: true };
      const { value, error } = await sdk.call<Event[]>("interactions.create", body);
      expect(error).toBeUndefined();
      expect(value.map(({ event_type: type }) => type)).toEqual([
        "interaction.created",
        "interaction.status_update",
        "step.start",
        "step.delta",
        "step.delta",
        "step.stop",
        "interaction.completed",
      ]);
      const picture = value.find(({ delta }) => delta?.type === "image")?.delta;
      expect(shapeOf(picture ?? { type: "image" })[1]).toBe("image/png");
      const { id } = value[0]?.interaction ?? {};
      const { value: all } = await sdk.call<Event[]>("interactions.get", id, { stream: true });
      expect(all).toEqual(value);
      const rest = { stream: true, last_event_id: value[3]?.event_id };
      expect((await sdk.call<Event[]>("interactions.get", id, rest)).value).toEqual(value.slice(4));
    });

    it("[SDK-15] gets a refusal as an error that it does not repeat", async () => {
      for (const more of [{}, { stream: true }]) {
        const body = { model: MODEL, input: "[[refuse]] a fox", ...more };
        const { error } = await sdk.call("interactions.create", body);
        expect(error).toMatchObject({ status: 400, message: expect.stringContaining("refused") });
      }
    });
  });
}
