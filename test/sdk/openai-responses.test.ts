import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { type SdkService, startSdkService } from "./service.ts";

type View = OpenaiBody<"Response"> & { output_text: string };

const TOOL = { type: "image_generation", model: "gpt-image-2" };
const MODEL = "gpt-5.5";

function shapeOf({ output }: Pick<View, "output">) {
  const header = readImageHeader(Buffer.from(output[0]?.result ?? "", "base64"));
  return [header?.mimeType, header?.widthPx, header?.heightPx];
}

for (const library of ["openai", "openai-7"] as const) {
  describe.skipIf(!areInstalled)(`Responses with OpenAI's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService();
      sdk = startSdk(library, { apiKey: service.apiKey, baseURL: `${service.url}/v1` });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    const create = async (more: object) => {
      const body = { model: MODEL, input: "a red fox", tools: [TOOL], ...more };
      const { value, error } = await sdk.call<View>("responses.create", body);
      expect(error).toBeUndefined();
      return value;
    };

    it("[SDK-14] makes a picture with words beside it, gets it again and deletes it", async () => {
      const made = await create({ tools: [{ ...TOOL, size: "1536x1024", output_format: "jpeg" }] });
      expect(made).toMatchObject({ status: "completed", output_text: expect.stringMatching(/\w/) });
      expect(shapeOf(made)).toEqual(["image/jpeg", 1536, 1024]);
      const { value: again } = await sdk.call<View>("responses.retrieve", made.id);
      expect(again).toEqual(made);
      expect((await sdk.call("responses.delete", made.id)).error).toBeUndefined();
      const missing = (await sdk.call("responses.retrieve", made.id)).error;
      expect(missing).toMatchObject({ status: 404, classes: expect.arrayContaining(["NotFoundError"]) });
    });

    it("[SDK-14] edits the picture over several turns", async () => {
      const first = await create({ tools: [{ ...TOOL, size: "1024x1536" }] });
      const second = await create({ input: "make it blue", previous_response_id: first.id });
      expect(second.output[0]).toMatchObject({ action: "edit" });
      const call = { type: "image_generation_call", id: second.output[0]?.id };
      const words = { role: "user", content: [{ type: "input_text", text: "add a hat" }] };
      const third = await create({ input: [call, words] });
      expect(third.output[0]).toMatchObject({ action: "edit" });
      const unknown = { model: MODEL, input: "x", tools: [TOOL], previous_response_id: "resp_none" };
      expect((await sdk.call("responses.create", unknown)).error).toMatchObject({
        status: 400,
        code: "previous_response_not_found",
      });
    });

    it.each(["create", "stream"])("[SDK-14] reads the events of a stream, by %s", async (method) => {
      const body = {
        model: MODEL,
        input: "a red fox",
        tools: [{ ...TOOL, partial_images: 3 }],
        ...(method === "create" && { stream: true }),
      };
      const { value, error } = await sdk.call<{ type: string; response?: View }[]>(
        `responses.${method}`,
        body,
      );
      expect(error).toBeUndefined();
      const types = value.map(({ type }) => type);
      expect(types[0]).toBe("response.created");
      expect(types).toContain("response.image_generation_call.completed");
      expect(types).toContain("response.output_text.done");
      const partial = "response.image_generation_call.partial_image";
      expect(types.filter((type) => type === partial)).toHaveLength(3);
      expect(types.at(-1)).toBe("response.completed");
      const { response } = value.at(-1) ?? {};
      expect(response && shapeOf(response)[0]).toBe("image/png");
      const { value: again } = await sdk.call<View>("responses.retrieve", response?.id);
      expect(again.output).toEqual(response?.output);
    });

    it("[SDK-14] gets a refusal as an error that it does not repeat", async () => {
      const body = { model: MODEL, input: "[[refuse]] a fox", tools: [TOOL] };
      for (const stream of [false, true]) {
        const { error } = await sdk.call("responses.create", { ...body, stream });
        expect(error).toMatchObject({ status: 400, code: "moderation_blocked" });
      }
    });
  });
}
