import { beforeEach, describe, expect, it } from "vitest";
import { tinyPng } from "../../support/fake-provider.ts";
import { ask, form, imagesOf, shapesOf } from "../../support/openai-images.ts";
import { startTestService, type TestService } from "../../support/service.ts";

let service: TestService;
beforeEach(async () => {
  service = await startTestService({ workers: false });
});

/** The parts that the program takes out of the answer: the images, with the type that it believes in. */
async function expectImages(answer: Response, count: number, format = "png", tokens = 1120): Promise<void> {
  expect(answer.headers.get("content-type")).toContain("application/json");
  const { bytes, created, usage } = await imagesOf(answer);
  expect(await shapesOf(bytes)).toEqual(Array.from({ length: count }, () => `8x8 ${format}`));
  expect(created).toEqual(expect.any(Number));
  expect(usage).toMatchObject({
    output_tokens: tokens * count,
    total_tokens: (usage?.input_tokens ?? 0) + tokens * count,
  });
}

describe("the bodies that programs send", () => {
  it("are those of Open WebUI, which takes URLs too and fetches them with its key", async () => {
    const fields = { model: "dall-e-2", prompt: "a fox", n: 1, size: "512x512" };
    const params = { seed: 7, steps: 20, negative_prompt: "" };
    const wanted = { ...fields, response_format: "b64_json", ...params };
    await expectImages(
      await ask(service, "/v1/images/generations?api-version=2025-04-01", wanted),
      1,
      "png",
      747,
    );
    await expectImages(
      await ask(service, "/v1/images/generations", { ...fields, size: "1024x1024", model: "gpt-image-1" }),
      1,
    );
    const byUrl = await ask(service, "/v1/images/generations", { ...wanted, response_format: "url" });
    const { data } = await imagesOf(byUrl);
    const image = await fetch(data[0]?.url ?? "", {
      headers: { authorization: `Bearer ${service.credentials.api_key}` },
    });
    expect(image.headers.get("content-type")?.split("/")[0]).toBe("image");
    await image.arrayBuffer();

    // Its library gives each text of a form a type.
    const part = (name: string, value: string) =>
      `--4f3a\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const texts = { model: "dall-e-2", prompt: "in autumn", n: "1", response_format: "b64_json" };
    const head = `--4f3a\r\nContent-Type: image/png\r\nContent-Disposition: form-data; name="image[]"; filename="image.png"\r\n\r\n`;
    const body = Buffer.concat([
      Buffer.from(
        Object.entries(texts)
          .map(([name, value]) => part(name, value))
          .join(""),
      ),
      Buffer.from(head),
      await tinyPng(),
      Buffer.from(`\r\n${head}`),
      await tinyPng(1),
      Buffer.from("\r\n--4f3a--\r\n"),
    ]);
    const edited = await fetch(`${service.url}/v1/images/edits`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": "multipart/form-data; boundary=4f3a",
      },
      body,
    });
    await expectImages(edited, 1);
  });

  it("are those of LibreChat, whose model never changes", async () => {
    const fields = { model: "gpt-image-1", prompt: "a fox", n: 1, background: "auto", quality: "auto" };
    const generate = (more: object) =>
      ask(service, "/v1/images/generations", { ...fields, size: "auto", ...more });
    await expectImages(await generate({ output_format: "png" }), 1);
    await expectImages(await generate({ output_format: "webp", output_compression: 100 }), 1, "webp");
    await expectImages(await generate({ output_format: "jpeg", output_compression: 100, n: 10 }), 10, "jpeg");
    const edit = form(
      ["model", "gpt-image-1"],
      ["prompt", "in autumn"],
      ["quality", "auto"],
      ["size", "auto"],
      ["image[]", await tinyPng()],
    );
    await expectImages(await ask(service, "/v1/images/edits", edit), 1);
  });

  it("are those of n8n", async () => {
    const fields = { prompt: "a fox", model: "dall-e-3", response_format: "b64_json" };
    const options = { size: "1024x1792", quality: "hd", style: "natural" };
    await expectImages(await ask(service, "/v1/images/generations", { ...fields, ...options }), 1);
    const newer = { prompt: "a fox", model: "gpt-image-1-mini", n: 2, quality: "medium" };
    await expectImages(await ask(service, "/v1/images/generations", newer), 2);
    const dalle = form(
      ["image", await tinyPng()],
      ["prompt", "in autumn"],
      ["model", "dall-e-2"],
      ["n", "1"],
      ["size", "1024x1024"],
      ["response_format", "b64_json"],
      ["user", "someone"],
    );
    await expectImages(await ask(service, "/v1/images/edits", dalle), 1);
    const gpt = form(
      ["image[]", await tinyPng()],
      ["image[]", await tinyPng(1)],
      ["prompt", "in autumn"],
      ["model", "gpt-image-1"],
      ["n", "2"],
      ["size", "1024x1024"],
      ["background", "opaque"],
      ["input_fidelity", "high"],
      ["output_format", "jpeg"],
      ["output_compression", "80"],
      ["quality", "auto"],
    );
    await expectImages(await ask(service, "/v1/images/edits", gpt), 2, "jpeg");
  });

  it("are those of Dify", async () => {
    const fields = { model: "gpt-image-2.5-flare", prompt: "a fox", n: 1 };
    const more = { size: "3840x2160", quality: "xhigh", background: "opaque", output_format: "webp" };
    const wanted = { ...fields, ...more, output_compression: 90 };
    await expectImages(await ask(service, "/v1/images/generations", fields), 1);
    await expectImages(await ask(service, "/v1/images/generations", wanted), 1, "webp", 1680);
    const edit = form(
      ["image[]", await tinyPng()],
      ["image[]", await tinyPng(1)],
      ["prompt", "in autumn"],
      ["model", "gpt-image-2"],
      ["n", "1"],
      ["size", "1536x1024"],
    );
    await expectImages(await ask(service, "/v1/images/edits", edit), 1);
  });

  it("are those of LiteLLM, with /v1 and without", async () => {
    const wanted = { model: "gpt-image-1", prompt: "a fox", user: "u", litellm_call_id: "x", metadata: {} };
    const edit = () =>
      tinyPng().then((image) => form(["model", "gpt-image-1"], ["image", image], ["prompt", "x"]));
    for (const base of ["/v1", ""]) {
      await expectImages(await ask(service, `${base}/images/generations`, wanted), 1);
      await expectImages(await ask(service, `${base}/images/edits`, await edit()), 1);
    }
  });
});
