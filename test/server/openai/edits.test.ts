import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { FIXED_LIMITS } from "../../../src/contract/limits.ts";
import { sha256Hex } from "../../../src/kernel/ids.ts";
import { seededRandom } from "../../soak/random.ts";
import { draftsBelow } from "../../support/drafts.ts";
import { FakeProvider, made, tinyJpeg, tinyPng } from "../../support/fake-provider.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { edit, errorOf, eventsOf, form, imagesOf, refusalOf } from "../../support/openai-images.ts";
import { picture } from "../../support/realtime.ts";
import { startTestService, type TestService } from "../../support/service.ts";
import { upload } from "../../support/uploads.ts";

/** A service whose provider reads its input images. */
async function editService() {
  const provider = new FakeProvider();
  const inputs: Buffer[][] = [];
  provider.answer = async ({ references }) => {
    inputs.push(await Promise.all(references.map((image) => image.read())));
    return made(await tinyPng());
  };
  const service = await startTestService({ workers: false, providers: [provider] });
  return { service, provider, inputs };
}

const draftsOf = ({ data }: TestService) => draftsBelow(data);
const dataUrl = (bytes: Buffer, type = "image/png") => `data:${type};base64,${bytes.toString("base64")}`;

describe("an edit as a form", () => {
  it("[OAI-4] takes one image or several, by all their names, in their order", async () => {
    const { service, inputs } = await editService();
    const [png, jpeg, wide] = [
      await tinyPng(1),
      await tinyJpeg(),
      await picture({ widthPx: 900, heightPx: 400 }),
    ];
    const rest = [
      ["prompt", "x"],
      ["n", "1"],
      ["model", "gpt-image-1"],
    ] as const;
    await imagesOf(await edit(service, form(["image", wide], ...rest)));
    await imagesOf(
      await edit(service, form(...rest, ["image[]", wide], ["image[]", jpeg], ["image[]", png])),
    );
    await imagesOf(await edit(service, form(["image[0]", png], ...rest, ["image[1]", jpeg])));
    expect(inputs).toEqual([[wide], [wide, jpeg, png], [png, jpeg]]);
    await expect.poll(() => draftsOf(service)).toEqual([]);
  });

  it("[OAI-4] makes an image of the shape of the first one unless a size is given", async () => {
    const { service, provider } = await editService();
    const wide = await picture({ widthPx: 900, heightPx: 400 });
    await imagesOf(await edit(service, form(["image", wide], ["prompt", "x"])));
    await imagesOf(await edit(service, form(["image", wide], ["prompt", "x"], ["size", "1024x1536"])));
    expect(provider.requests.map(({ options }) => options.ratio)).toEqual(["21:9", "2:3"]);
  });

  it("[OAI-4] comes with a length or without, in pieces of any size", async () => {
    const { service, inputs } = await editService();
    const image = await tinyPng(3);
    const part = (name: string) => `--openai-x\r\ncontent-disposition: form-data; name="${name}"`;
    const body = Buffer.concat([
      Buffer.from(`${part("prompt")}\r\n\r\nin autumn – ♥\r\n`),
      Buffer.from(
        `${part("image")}; filename="unknown_file"\r\ncontent-type: application/octet-stream\r\n\r\n`,
      ),
      image,
      Buffer.from("\r\n--openai-x--\r\n"),
    ]);
    for (const size of [1, 7, 1000]) {
      const pieces = Array.from({ length: Math.ceil(body.length / size) }, (_, i) =>
        Uint8Array.from(body.subarray(i * size, (i + 1) * size)),
      );
      const answer = await fetch(`${service.url}/v1/images/edits`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${service.credentials.api_key}`,
          "content-type": "multipart/form-data; boundary=openai-x",
        },
        body: Readable.toWeb(Readable.from(pieces)),
        duplex: "half",
      } as RequestInit);
      await imagesOf(answer);
    }
    expect(inputs).toEqual([[image], [image], [image]]);
  });

  it("[OAI-4] can be streamed", async () => {
    const { service } = await editService();
    const sent = form(["image", await tinyPng()], ["prompt", "x"], ["stream", "true"]);
    const events = eventsOf(await (await edit(service, sent)).text());
    expect(events.map(({ name }) => name)).toEqual(["image_edit.completed"]);
  });

  it("is refused with what is wrong, and leaves nothing on the disk", async () => {
    const { service, provider } = await editService();
    const png = await tinyPng();
    const many = (count: number) => Array.from({ length: count }, () => ["image[]", png] as const);
    const prompt = ["prompt", "x"] as const;
    for (const [sent, param, words] of [
      [form(prompt, ["image", png], ["mask", png]), "mask", "not supported"],
      [form(prompt), "image", "is required"],
      [form(["image", png]), "prompt", "is required"],
      [form(prompt, ["image", Buffer.from("no image")]), "image[0]", "not a PNG"],
      [form(prompt, ["image", png], ["image", png.subarray(0, 60)]), "image[1]", "PNG"],
      [form(prompt, ...many(15)), "image", "at most 14"],
      [form(...many(17), prompt), "image", "at most 16"],
      [form(prompt, ["image", png], ["n", "eleven"]), "n", "must be a number"],
      [form(prompt, ["image", png], ["size", "9".repeat(70_000)]), "size", "more than 65536 bytes"],
      [form(prompt, ["image", Buffer.alloc(0)]), "image[0]", "is empty"],
      [form(prompt, ["image", png], ["image[]", ""]), "image[1]", "is empty"],
      [form(prompt, ["image", "fox.png"]), "image[0]", "not a PNG"],
      [form(["prompt", png], ["image", png]), "prompt", "must be a text, not a file"],
      [form(prompt, ["image", png], ["n".repeat(300), "x"]), `${"n".repeat(40)}…`, "at most 256 bytes"],
    ] as const) {
      const answer = await edit(service, sent);
      expect(await errorOf(answer)).toMatchObject({ param, message: expect.stringContaining(words) });
      expect(answer.status).toBe(400);
    }
    expect((await edit(service, "x", { headers: { "content-type": "text/plain" } })).status).toBe(415);
    expect(provider.requests).toEqual([]);
    await expect.poll(() => draftsOf(service)).toEqual([]);
    await imagesOf(await edit(service, form(prompt, ...many(14))));
  });

  it("[OAI-4] takes images of 50 MiB and no larger ones, and the disk is free afterwards", async () => {
    const { service } = await editService();
    const large = Buffer.concat([await tinyPng(), Buffer.alloc(FIXED_LIMITS.editImageBytes)]);
    const answer = await edit(service, form(["prompt", "x"], ["image", large]));
    expect(await errorOf(answer)).toMatchObject({
      param: "image[0]",
      message: expect.stringContaining("50 MiB"),
    });
    await expect.poll(() => draftsOf(service)).toEqual([]);
  });

  it("[API-5] above the limit of real-time bodies is answered with 413, announced or not, and leaves nothing", async () => {
    const config = { limits: { realtimeBodyBytes: 5000 } };
    const service = await startTestService({ workers: false, providers: [new FakeProvider()], config });
    const prompt = ["prompt", "x"] as const;
    await imagesOf(await edit(service, form(prompt, ["image", await tinyPng()])));
    const large = form(prompt, ["image", Buffer.alloc(6000)]);
    expect(await refusalOf(await edit(service, large))).toEqual([413, "REQUEST_TOO_LARGE", null]);
    const sent = new Response(large);
    const chunked = await fetch(`${service.url}/v1/images/edits`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": sent.headers.get("content-type") ?? "",
      },
      body: sent.body,
      duplex: "half",
    } as RequestInit);
    expect(chunked.status).toBe(413);
    await expect.poll(() => draftsOf(service)).toEqual([]);
  });

  it("[OAI-4] whose sender goes away leaves nothing on the disk", async () => {
    const { service } = await editService();
    const caller = new AbortController();
    const first = `--x\r\ncontent-disposition: form-data; name="image"; filename="a"\r\n\r\n${"x".repeat(1e6)}`;
    const body = new ReadableStream({
      start: (controller) => controller.enqueue(Buffer.from(first)),
    });
    const pending = fetch(`${service.url}/v1/images/edits`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": "multipart/form-data; boundary=x",
      },
      body,
      signal: caller.signal,
      duplex: "half",
    } as RequestInit);
    await expect.poll(() => draftsOf(service)).toHaveLength(1);
    caller.abort();
    await expect(pending).rejects.toThrow();
    await expect.poll(() => draftsOf(service)).toEqual([]);
  });
});

describe("an edit as JSON", () => {
  it("takes data URLs, small and large, and files of the key", async () => {
    const { service, inputs } = await editService();
    const [png, jpeg] = [await tinyPng(2), await tinyJpeg()];
    const noise = Buffer.concat([png, Buffer.alloc(2_000_000)]);
    const { name = "", uri = "" } = await upload(service, png);
    const images = [
      { image_url: dataUrl(jpeg, "image/jpeg") },
      { file_id: name.replace("files/", "") },
      { file_id: uri },
      { image_url: dataUrl(noise), file_id: null },
    ];
    await imagesOf(await edit(service, { prompt: "x", images }));
    expect(inputs[0]?.map(sha256Hex)).toEqual([jpeg, png, png, noise].map(sha256Hex));
    await expect.poll(() => draftsOf(service)).toEqual([]);
  });

  it("is refused with what is wrong: nothing is fetched, and no foreign file is read", async () => {
    const { service } = await editService();
    const image_url = dataUrl(await tinyPng());
    const long = "A".repeat(2_000_000);
    const refusals = [];
    for (const images of [
      undefined,
      [],
      [{}],
      [{ image_url, file_id: "x" }],
      [{ image_url }, { image_url: "https://example.com/a.png" }],
      [{ image_url: "data:image/png,plain" }],
      [{ image_url: "data:image/png;base64,???" }],
      [{ image_url: `data:image/png;base64,${long}?` }],
      [{ image_url: long }],
      [{ image_url: `data:image/png;base64,${long}` }],
      [{ file_id: "nope" }],
      Array.from({ length: 15 }, () => ({ image_url })),
      Array.from({ length: 17 }, () => ({ image_url })),
    ]) {
      const [status, , param] = await refusalOf(await edit(service, { prompt: "x", images }));
      refusals.push([status, param]);
    }
    expect(refusals).toEqual([
      [400, "images"],
      [400, "images"],
      [400, "images[0]"],
      [400, "images[0]"],
      [400, "images[1].image_url"],
      [400, "images[0].image_url"],
      [400, "images[0].image_url"],
      [400, "images[0].image_url"],
      [400, "images[0].image_url"],
      [400, "images[0]"],
      [400, "images[0].file_id"],
      [400, "image"],
      [400, "image"],
    ]);
  });
});

const BOUNDARY = "openai-0123456789";

async function wholeForm(): Promise<Buffer> {
  const head = (name: string, file = "") =>
    Buffer.from(`--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${file}\r\n\r\n`);
  const file = '; filename="a.png"\r\ncontent-type: image/png';
  const end = Buffer.from("\r\n");
  return Buffer.concat([
    ...[head("prompt"), Buffer.from("a fox"), end],
    ...[head("image[]", file), await tinyPng(), end],
    ...[head("n"), Buffer.from("2"), end],
    ...[head("image[]", file), await tinyPng(1), end],
    Buffer.from(`--${BOUNDARY}--\r\n`),
  ]);
}

it("a form that is damaged anywhere gets an answer, never a fault, and leaves nothing on the disk", async () => {
  const service = await startTestService({ workers: false });
  const random = seededRandom(7);
  const below = (max: number) => Math.floor(random() * max);
  const whole = await wholeForm();
  const damages = [
    (bytes: Buffer) => bytes.subarray(0, below(bytes.length)),
    (bytes: Buffer) => Buffer.concat([bytes.subarray(below(40)), bytes.subarray(0, below(40))]),
    (bytes: Buffer) => {
      const copy = Buffer.from(bytes);
      for (let i = 0; i < 3; i++) copy[below(copy.length)] = below(256);
      return copy;
    },
    (bytes: Buffer) => {
      const at = below(bytes.length);
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(below(at + 1), at), bytes.subarray(at)]);
    },
  ];
  const seen = new Set<number>();
  for (let i = 0; i < fuzzRuns(200); i++) {
    const body = damages[i % damages.length]?.(whole) ?? whole;
    const answer = await fetch(`${service.url}/v1/images/edits`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": `multipart/form-data; boundary=${BOUNDARY}`,
      },
      body: Uint8Array.from(body),
    });
    const text = await answer.text();
    seen.add(answer.status);
    expect([i, answer.status, answer.status < 500], text).toEqual([i, answer.status, true]);
  }
  expect([...seen].sort()).toEqual([200, 400]);
  await expect.poll(() => draftsBelow(service.data)).toEqual([]);
});
