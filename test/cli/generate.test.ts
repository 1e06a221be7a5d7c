import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { expect, it, vi } from "vitest";
import { eventLineSchema } from "../../src/contract/events.ts";
import { systemClock } from "../../src/kernel/clock.ts";
import { createInProcessCli, type InProcessCli } from "../support/cli-in-process.ts";
import { type NativeAnswer, withImages } from "../support/fake-native.ts";
import { png } from "../support/fake-service.ts";
import { gate } from "../support/gate.ts";
import { endLimitWhen, LIMIT } from "./time-limit.ts";

const JPEG = Buffer.from("ffd8ffc0001108000400030301110002110103110100ffd9", "hex");
const FOX = ["generate", "a red fox", "-o", "fox.png"];
/** An error that asks for no pause, so that tests need none. */
const error = (status: number, message = "No."): NativeAnswer => ({
  status,
  message,
  headers: { "retry-after": "0" },
});
const times = (count: number, answer: NativeAnswer) => Array.from({ length: count }, () => answer);

it("[GEN-8] one prompt gives one file of the very bytes, and its path is all that stdout has", async () => {
  const cli = await createInProcessCli();
  const { code, stdout, stderr } = await cli.run(FOX);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "fox.png\n" });
  expect(stderr).toContain("4x3 image/png, ");
  expect(stderr).toContain("by vendorx-3.1-flash-image (drawn-1)");
  expect(readFileSync(cli.path("fox.png")).equals(png("a red fox"))).toBe(true);
  expect(cli.list()).toEqual(["fox.png"]);
});

it("[GEN-8] as JSON the result names the file, its facts and what made it", async () => {
  const cli = await createInProcessCli();
  expect((await cli.run([...FOX, "--json"])).json()).toMatchObject({
    ok: true,
    exit_code: 0,
    path: "fox.png",
    mime_type: "image/png",
    width: 4,
    height: 3,
    bytes: png("a red fox").length,
    sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    model: "vendorx-3.1-flash-image",
    model_version: "drawn-1",
    attempts: 1,
    request_id: "req_native",
  });
});

it.each([
  [
    "Latin-1",
    Buffer.from('a sign\nthat says "Caf\xe9"', "latin1"),
    "<stdin>:2: is not valid UTF-8; save the text as UTF-8",
  ],
  [
    "cut in a character",
    Buffer.from("a café").subarray(0, -1),
    "<stdin>:1: is not valid UTF-8; save the text as UTF-8",
  ],
  ["UTF-16", Buffer.from("a fox in snow", "utf16le"), "<stdin>: the file is UTF-16; save it as UTF-8"],
  ["an image", png("x"), "<stdin>: is a PNG image, not a prompt file"],
])("a prompt on standard input that is %s is refused, and nothing is paid", async (_, stdin, problem) => {
  const cli = await createInProcessCli();
  const result = await cli.run(["generate", "-"], { stdin });
  expect(result).toMatchObject({ code: 2, stdout: "" });
  expect(result.stderr).toContain(problem);
  expect(cli.fake.requests).toEqual([]);
});

it("[GEN-8] the prompt can come from standard input, and the options reach the request", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("a.png"), png("a"));
  writeFileSync(cli.path("b.jpg"), JPEG);
  const flags = ["--image", "a.png", "--image", "b.jpg", "--aspect-ratio", "16:9", "--size", "2k", "--model"];
  const { code } = await cli.run(["generate", "-", "-o", "x", ...flags, "vendorx-3-pro-image"], {
    stdin: " both\n",
  });
  expect(code).toBe(0);
  expect(cli.list()).toEqual(["a.png", "b.jpg", "x.png"]);
  const [request] = cli.fake.requests;
  expect(request?.path).toContain("/vendorx-3-pro-image:generateContent");
  expect(request?.json).toEqual({
    contents: [
      {
        role: "user",
        parts: [
          { text: "both" },
          { inlineData: { mimeType: "image/png", data: png("a").toString("base64") } },
          { inlineData: { mimeType: "image/jpeg", data: JPEG.toString("base64") } },
        ],
      },
    ],
    generationConfig: {
      responseModalities: ["TEXT", "IMAGE"],
      imageConfig: { aspectRatio: "16:9", imageSize: "2K" },
    },
  });
});

it("[GEN-8] without a file name the prompt names the file, and never takes a name that is there", async () => {
  const cli = await createInProcessCli();
  expect((await cli.run(["generate", "A red/../fox: *über* 5?"])).stdout).toBe("a-red-fox-über-5.png\n");
  expect((await cli.run(["generate", "A red/../fox: *über* 5?"])).stdout).toBe("a-red-fox-über-5-2.png\n");
  expect((await cli.run(["generate", "…"])).stdout).toBe("image.png\n");
  expect((await cli.run(["generate", "x".repeat(500), "-o", "deep/er/"])).stdout).toBe(
    `deep/er/${"x".repeat(60)}.png\n`,
  );
});

it("the ending follows the bytes, and that is said", async () => {
  const cli = await createInProcessCli();
  cli.fake.always(/./, { images: [JPEG], type: "image/png" });
  const { code, stdout, stderr } = await cli.run(FOX);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "fox.jpg\n" });
  expect(stderr).toContain("the image is image/jpeg: saved as fox.jpg, not fox.png");
  expect(cli.list()).toEqual(["fox.jpg"]);
  expect((await cli.run(["generate", "x", "-o", "a.JPEG"])).stdout).toBe("a.JPEG\n");
  expect((await cli.run(["generate", "x", "-o", "v1.2"])).stdout).toBe("v1.2.jpg\n");
});

it("the ending of the file or --mime-type decides which type is asked for, and PNG needs no field", async () => {
  const cli = await createInProcessCli();
  const asked = async (...flags: string[]) => {
    expect((await cli.run(["generate", "x", ...flags])).code).toBe(0);
    return cli.fake.requests.at(-1)?.json.generationConfig.imageConfig;
  };
  expect(await asked("-o", "a.png")).toEqual({});
  expect(await asked("-o", "b")).toEqual({});
  expect(await asked("-o", "c.WebP")).toEqual({ outputMimeType: "image/webp" });
  expect(await asked("-o", "d.jpeg")).toEqual({ outputMimeType: "image/jpeg" });
  expect(await asked("-o", "e.jpg", "--mime-type", "image/webp")).toEqual({ outputMimeType: "image/webp" });
});

it("a file that is there is refused before anything is sent; --force replaces it, and only by an image", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("fox.png"), "mine");
  const refused = await cli.run(FOX);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain("fox.png exists already: --force replaces it. Nothing was sent.");
  expect(cli.fake.requests).toHaveLength(0);
  cli.fake.answer(/./, { body: {} }, { body: {} });
  expect((await cli.run([...FOX, "--force", "--retries", "0"])).code).toBe(5);
  expect(readFileSync(cli.path("fox.png"), "utf8")).toBe("mine");
  expect((await cli.run([...FOX, "--force", "--retries", "0"])).code).toBe(5);
  expect((await cli.run([...FOX, "--force"])).code).toBe(0);
  expect(readFileSync(cli.path("fox.png")).equals(png("a red fox"))).toBe(true);
});

it("a file that appears meanwhile, or has the name by its true ending, is not replaced", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("fox.jpg"), "mine");
  cli.fake.answer(/./, { images: [JPEG] });
  expect((await cli.run([...FOX, "--force"])).stdout).toBe("fox-2.jpg\n");
  const held = gate();
  cli.fake.hold = held.promise;
  const running = cli.run(FOX);
  await expect.poll(() => cli.fake.requests.length).toBe(2);
  writeFileSync(cli.path("fox.png"), "mine too");
  held.open();
  const { code, stdout, stderr } = await running;
  expect({ code, stdout }).toEqual({ code: 0, stdout: "fox-2.png\n" });
  expect(stderr).toContain("another program has created fox.png meanwhile: saved as fox-2.png");
  expect(readFileSync(cli.path("fox.jpg"), "utf8")).toBe("mine");
  expect(readFileSync(cli.path("fox.png"), "utf8")).toBe("mine too");
  expect(cli.list()).toEqual(["fox-2.jpg", "fox-2.png", "fox.jpg", "fox.png"]);
});

const WRONG: [string[], RegExp][] = [
  [[], /Say what the image shows/],
  [[""], /The prompt is empty/],
  [["x", "--file", "p.jsonl"], /either a prompt or --file/],
  [["x", "--size", "3K"], /--size "3K": use 512, 1K, 2K, 4K/],
  [["x", "--aspect-ratio", "16to9"], /--aspect-ratio "16to9": write width:height/],
  [["x", "--image", "none.png"], /--image: there is no file "none.png"/],
  [["x", "--image", "text.png"], /must be a PNG, JPEG or WebP image/],
  [["x", "--image", "."], /is not a file/],
  [["x", "-j", "2"], /--concurrency: works only with --file/],
  [["x", "--rpm", "2"], /--rpm: works only with --file/],
  [["--file", "p.jsonl", "--force"], /--force: works only for a single image/],
  [["x", "--retries", "4"], /--retries "4": write a whole number from 0 to 3/],
  [["x", "-o", "-"], /--output: name a file/],
  [
    ["x", "--model", "none"],
    /There is no real-time model "none"; there is vendorx-3.1-flash-image, vendorx-3-pro-image/,
  ],
  [["--file", "none.jsonl"], /no such file/],
  [["x", "y"], /too many arguments/],
];
it("whatever is wrong with the command line is exit 2, and no image is asked for", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("text.png"), "no image");
  for (const [args, message] of WRONG) {
    const { code, stdout, stderr } = await cli.run(["generate", ...args]);
    expect({ args, code, stdout }).toEqual({ args, code: 2, stdout: "" });
    expect(stderr).toMatch(message);
  }
  expect(cli.fake.requests).toHaveLength(0);
  expect(cli.list()).toEqual(["text.png"]);
});

it("what the model list says is checked before an image is asked for", async () => {
  const cli = await createInProcessCli();
  const facts = { aspectRatios: ["1:1"], imageSizes: ["1K"], maxInputImages: 1 };
  cli.fake.models = [{ name: "models/small-image", ...facts }];
  writeFileSync(cli.path("a.png"), png("a"));
  const twice = ["--image", "a.png", "--image", "a.png"];
  const wrong: [string[], RegExp][] = [
    [["--size", "4K"], /--size 4K: small-image makes 1K/],
    [["--aspect-ratio", "3:2"], /--aspect-ratio 3:2: small-image makes 1:1/],
    [twice, /takes at most 1 input images, not 2/],
  ];
  for (const [args, message] of wrong) {
    const { code, stderr } = await cli.run(["generate", "x", ...args]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  }
  expect(cli.fake.requests).toHaveLength(0);
});

it("the default is the first model of the list, whatever its name", async () => {
  const cli = await createInProcessCli();
  cli.fake.models = ["gemini-nano-banana-2.1", "small-image"].map((id) => ({ name: `models/${id}` }));
  expect((await cli.run(["generate", "x"])).code).toBe(0);
  expect(cli.fake.requests.map(({ path }) => path)).toEqual([
    "/v1beta/models/gemini-nano-banana-2.1:generateContent",
  ]);
});

const OUTCOMES: [string, NativeAnswer[], number, number, RegExp, RegExp][] = [
  ["a reset, then an image", [{ reset: true }], 0, 2, /./, /./],
  ["429 with a hint, then an image", [error(429)], 0, 2, /./, /./],
  ["503, then an image", [error(503)], 0, 2, /./, /./],
  ["a cut answer, then an image", [{ cutAt: 60 }], 0, 2, /the image may be billed twice\. Trying again/, /./],
  ["cut answers", times(4, { cutAt: 60 }), 7, 2, /the image may be billed twice/, /may have been billed/],
  [
    "an error, then cut answers",
    [error(503), ...times(2, { cutAt: 60 })],
    7,
    3,
    /billed twice/,
    /may have been/,
  ],
  ["a cut answer, then an error", [{ cutAt: 60 }, error(503)], 7, 2, /billed twice/, /wait a while/],
  ["429 without end", times(4, error(429)), 7, 4, /No\. \(RESOURCE_EXHAUSTED\)/, /wait a while/],
  [
    "an error page",
    times(4, { status: 502, html: "<h1>", headers: { "retry-after": "0" } }),
    7,
    4,
    /HTTP 502/,
    /may have been billed/,
  ],
  ["500", [error(500)], 7, 1, /No\./, /may have been billed/],
  ["broken JSON", [{ body: '{"candidates"' }], 7, 1, /that is not JSON/, /base-url/],
  ["no image twice", times(2, { body: {} }), 5, 2, /without a usable image/, /state in the prompt/],
  ["wrong Base64 twice", times(2, { body: withBase64("****") }), 5, 2, /does not decode/, /./],
  ["half an image twice", times(2, { images: [png("x").subarray(0, 60)] }), 5, 2, /not whole/, /./],
  [
    "a refusal",
    [{ body: { promptFeedback: { blockReason: "SAFETY" } } }],
    5,
    1,
    /refused the prompt \(SAFETY\)/,
    /refused again/,
  ],
  ["a wrong key", [error(401)], 3, 1, /No\./, /give a key/],
  ["no money", [error(402)], 8, 1, /No\./, /top up/],
  ["a bad request", [error(400)], 2, 1, /INVALID_ARGUMENT/, /nothing was made/],
  [
    "no capacity",
    [error(503, "all tokens are locked")],
    7,
    1,
    /all tokens are locked/,
    /no capacity now.*wait some minutes/,
  ],
];
for (const [what, answers, code, requests, said, advised] of OUTCOMES) {
  it(`${what}: exit ${code} after ${requests} requests, and no half file`, async () => {
    const cli = await createInProcessCli();
    cli.fake.answer(/./, ...answers);
    const result = await cli.run([...FOX, "--json"]);
    expect(result.code).toBe(code);
    expect(result.json()).toMatchObject({ ok: code === 0, exit_code: code });
    expect(cli.fake.requests).toHaveLength(requests);
    expect(cli.list()).toEqual(code === 0 ? ["fox.png"] : []);
    expect(result.stderr).toMatch(said);
    expect(result.stderr.trim().split("\n").slice(-2).join("\n")).toMatch(advised);
    if (code !== 0) expect(result.json().error?.message).toMatch(said);
  });
}

it("--timeout ends everything with 124, and says that the request may be billed", async () => {
  const cli = await createInProcessCli();
  cli.fake.always(/./, { silent: true });
  endLimitWhen(() => cli.fake.requests.length > 0);
  const { code, stderr } = await cli.run([...FOX, "--timeout", LIMIT]);
  expect(code).toBe(124);
  expect(stderr).toContain(
    "Timed out after 1 s: no image was saved; the request was sent and may be billed.",
  );
  expect(cli.list()).toEqual([]);
});

it("a signal ends the request with 130 or 143, and says the same", async () => {
  for (const [name, code, word] of [
    ["SIGINT", 130, "Interrupted"],
    ["SIGTERM", 143, "Terminated"],
  ] as const) {
    const cli = await createInProcessCli();
    cli.fake.always(/./, { silent: true });
    const running = cli.run([...FOX, "--json"]);
    await expect.poll(() => cli.fake.requests.length).toBe(1);
    cli.signal(name);
    const result = await running;
    expect(result.code).toBe(code);
    expect(result.json().error?.message).toBe(
      `${word}: no image was saved; the request was sent and may be billed.`,
    );
    expect(cli.list()).toEqual([]);
  }
});

it("[GEN-8] of several images the first is saved, and that is said", async () => {
  const cli = await createInProcessCli();
  cli.fake.answer(/./, { images: [png("1"), png("2")] });
  const { stderr } = await cli.run(FOX);
  expect(stderr).toContain("the response held more than one image (2); the first was saved");
  expect(readFileSync(cli.path("fox.png")).equals(png("1"))).toBe(true);
});

it("models --realtime lists each id with its prices by size", async () => {
  const cli = await createInProcessCli();
  cli.fake.models.push({ name: "models/priced", pricing: { images: { "1K": 0.067, "2K": 0.101 } } });
  const { stdout } = await cli.run(["models", "--realtime"]);
  expect(stdout).toBe("vendorx-3.1-flash-image\nvendorx-3-pro-image\npriced  1K $0.067  2K $0.101\n");
  expect((await cli.run(["models", "--realtime", "--json"])).json().models).toHaveLength(3);
});

function withBase64(data: string): object {
  const body = withImages([png("x")]);
  return JSON.parse(JSON.stringify(body).replace(png("x").toString("base64"), data));
}

async function many(prompts: string[]): Promise<InProcessCli> {
  const cli = await createInProcessCli();
  const lines = prompts.map((prompt) => JSON.stringify({ custom_id: prompt.replace(/ /g, "-"), prompt }));
  writeFileSync(cli.path("p.jsonl"), `${lines.join("\n")}\n`);
  return cli;
}
const RUN = ["generate", "--file", "p.jsonl", "-o", "out"];
const results = (cli: InProcessCli) =>
  readFileSync(cli.path("out/results.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));

it("[GEN-10] a file of prompts gives a directory with every image and a line for each in its order", async () => {
  const cli = await many(["cat one", "dog two", "owl three"]);
  const { code, stdout, stderr } = await cli.run([...RUN, "-j", "3", "--rpm", "1000"]);
  expect({ code, stdout }).toEqual({ code: 0, stdout: "out\n" });
  expect(stderr).toMatch(/3 of 3 images on disk\nnext: imgbatch open out\n$/);
  expect(cli.list("out")).toEqual([
    "checks.jsonl",
    "images",
    "imgbatch.json",
    "index.html",
    "input.jsonl",
    "results.jsonl",
  ]);
  expect(cli.list("out/images")).toEqual(["cat-one.png", "dog-two.png", "owl-three.png"]);
  expect(results(cli)).toMatchObject([
    {
      custom_id: "cat-one",
      status: "success",
      model_version: "drawn-1",
      files: [{ path: "images/cat-one.png" }],
    },
    { custom_id: "dog-two", status: "success" },
    { custom_id: "owl-three", status: "success" },
  ]);
});

it("[GEN-10] the summary says how many images of a file differ from what was asked, and in what", async () => {
  const cli = await many(["cat", "dog"]);
  const { code, stderr } = await cli.run([...RUN, "--mime-type", "image/webp"]);
  expect([code, stderr]).toEqual([
    0,
    expect.stringContaining("2 images differ from what was asked: type; see out/index.html\n"),
  ]);
  const notes = ["asked for image/webp, the service sent image/png"];
  expect(results(cli)).toMatchObject([{ notes }, { notes }]);
  expect((await (await many(["cat"])).run(RUN)).stderr).not.toContain("differ");
});

it("[GEN-10] the same command again makes only what is missing or damaged", async () => {
  const cli = await many(["cat", "dog", "owl"]);
  await cli.run(RUN);
  const again = await cli.run(RUN);
  expect(again.code).toBe(0);
  expect(again.stderr).toContain("3 of 3 images are here already");
  expect(cli.fake.requests).toHaveLength(3);
  writeFileSync(cli.path("out/images/dog.png"), "damaged");
  expect((await cli.run([...RUN, "--json"])).json()).toMatchObject({ made_count: 1, counts: { success: 3 } });
  expect(cli.fake.requests.map((request) => request.prompt).slice(3)).toEqual(["dog"]);
});

it("[GEN-10] an image that a killed process had saved, and not written down, is not made again", async () => {
  const cli = await many(["cat", "dog"]);
  await cli.run(RUN);
  writeFileSync(cli.path("out/results.jsonl"), "");
  writeFileSync(cli.path("out/images/dog.png"), png("dog").subarray(0, 50));
  writeFileSync(cli.path("out/images/.dog.png.0123456789ab.partial"), "half");
  expect((await cli.run(RUN)).code).toBe(0);
  expect(cli.fake.requests.map((request) => request.prompt).slice(2)).toEqual(["dog"]);
  expect(results(cli).map((line) => line.status)).toEqual(["success", "success"]);
  expect(cli.list("out/images")).toEqual(["cat.png", "dog.png"]);
});

it("[GEN-10] counts make images of their own, references are sent, and --image serves the prompts without any", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("a.png"), png("a"));
  writeFileSync(cli.path("b.png"), png("b"));
  const lines = [
    { custom_id: "x", prompt: "x", output_count: 2, reference_images: ["a.png"] },
    { custom_id: "y", prompt: "y" },
  ];
  writeFileSync(cli.path("p.jsonl"), lines.map((line) => JSON.stringify(line)).join("\n"));
  expect((await cli.run([...RUN, "--image", "b.png", "-j", "1"])).code).toBe(0);
  expect(cli.list("out/images")).toEqual(["x_01.png", "x_02.png", "y.png"]);
  const sent = cli.fake.requests.map(({ json }) => json.contents[0]?.parts[1]?.inlineData?.data);
  const [a, b] = [png("a").toString("base64"), png("b").toString("base64")];
  expect(sent).toEqual([a, a, b]);
});

it("no more requests are under way than asked for", async () => {
  const cli = await many(["1", "2", "3", "4", "5", "6", "7"]);
  const held = gate();
  cli.fake.hold = held.promise;
  const running = cli.run([...RUN, "-j", "2"]);
  await expect.poll(() => cli.fake.requests.length, { timeout: 20_000 }).toBe(2);
  held.open();
  expect((await running).code).toBe(0);
  expect(cli.fake.mostUnderWay).toBe(2);
});

it("some failures are exit 4 with the prompts to try again, none made is exit 5", async () => {
  const cli = await many(["cat", "bad dog", "owl"]);
  cli.fake.always(/bad/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
  const { code, stderr } = await cli.run(RUN);
  expect(code).toBe(4);
  expect(stderr).toContain("bad-dog: IMAGE_REFUSED: The service refused the prompt (SAFETY).");
  expect(stderr).toContain(
    "look at the failed prompts in out/retry.jsonl, then:\nnext: imgbatch generate --file out/retry.jsonl",
  );
  expect(JSON.parse(readFileSync(cli.path("out/retry.jsonl"), "utf8"))).toEqual({
    custom_id: "bad-dog",
    prompt: "bad dog",
  });
  expect(results(cli)[1]).toMatchObject({ status: "failed", files: [], error: { code: "IMAGE_REFUSED" } });
  const retry = await cli.run(["generate", "--file", "out/retry.jsonl", "--json"]);
  expect([retry.code, retry.json().error?.code]).toEqual([5, "NO_IMAGES"]);
});

it("failures that may pass are exit 7: the same command makes the rest", async () => {
  const cli = await many(["cat", "dog", "owl"]);
  cli.fake.answer(/dog/, error(429));
  const { code, json } = await cli.run([...RUN, "--retries", "0", "--json"]);
  expect([code, json().error?.code]).toEqual([7, "RATE_LIMITED"]);
  const again = await cli.run(RUN);
  expect(again.code).toBe(0);
  expect(cli.list("out")).not.toContain("retry.jsonl");
});

const STOPS: [string, NativeAnswer, number, number, RegExp][] = [
  ["no capacity", error(503, "All tokens are disabled"), 7, 1, /no capacity now/],
  ["no money", error(402), 8, 1, /fix that/],
  ["a disabled key", error(401), 3, 1, /fix that/],
  ["failures in a row", error(503), 7, 3, /run the same command again/],
];
for (const [what, answer, code, failed, next] of STOPS) {
  it(`${what} stops the run with exit ${code}; what was made stays, and nothing more is asked for`, async () => {
    const cli = await many(["first", "2", "3", "4", "5", "6"]);
    cli.fake.always(/[2-6]/, answer);
    const stopped = await cli.run([...RUN, "-j", "1", "--retries", "0", "--json"]);
    expect(stopped.code).toBe(code);
    expect(stopped.json()).toMatchObject({
      ok: false,
      counts: { total: 6, success: 1, failed, pending: 5 - failed },
      error: { message: expect.stringMatching(/No\.|tokens/) },
    });
    expect(stopped.stderr).toMatch(next);
    expect(cli.fake.requests).toHaveLength(1 + failed);
    expect(results(cli).map((line) => line.status)).toContain("pending");
    expect(cli.list("out/images")).toEqual(["first.png"]);
  });
}

it("a signal ends the requests under way, keeps what was made, and tells how many may be billed", async () => {
  const cli = await many(["cat", "slow 1", "slow 2", "owl", "slow 3"]);
  cli.fake.always(/slow/, { silent: true });
  const running = cli.run([...RUN, "-j", "3", "--json"]);
  // The last request leaves when the two images are done.
  await expect.poll(() => cli.fake.requests.length).toBe(5);
  cli.signal("SIGINT");
  const { code, json } = await running;
  expect(code).toBe(130);
  expect(json()).toMatchObject({
    counts: { success: 2, failed: 0, pending: 3 },
    retry: null,
    error: { code: "INTERRUPTED", message: "Interrupted; 3 requests were under way and may be billed." },
  });
  expect(cli.list("out/images")).toEqual(["cat.png", "owl.png"]);
});

it("a directory of other prompts, of another kind of run or of other files is refused", async () => {
  const cli = await many(["cat"]);
  await cli.run(RUN);
  expect((await cli.run([...RUN, "--size", "2K"])).code).toBe(6);
  // What it would be anyway is the same run.
  expect((await cli.run([...RUN, "--size", "1K"])).code).toBe(0);
  const plain = readFileSync(cli.path("p.jsonl"), "utf8");
  writeFileSync(cli.path("p.jsonl"), plain.replace("}", ', "size": "1K"}'));
  expect((await cli.run(RUN)).code).toBe(0);
  writeFileSync(cli.path("q.jsonl"), '{"prompt":"other"}');
  expect((await cli.run(["generate", "--file", "q.jsonl", "-o", "out"])).code).toBe(6);
  writeFileSync(cli.path("p.jsonl"), '{"prompt":"a blue cat"}\n{"prompt":"a dog"}');
  const edited = await cli.run(RUN);
  expect([edited.code, edited.stderr]).toEqual([6, expect.stringContaining("2 prompts added, 1 removed")]);
  expect(edited.stderr).toContain("p.jsonl:1:");
  mkdirSync(cli.path("theirs/images"), { recursive: true });
  writeFileSync(cli.path("theirs/images/x.png"), "x");
  expect((await cli.run(["generate", "--file", "p.jsonl", "-o", "theirs"])).code).toBe(6);
  expect(cli.fake.requests).toHaveLength(1);
});

it("the commands for batches say of such a directory that it has none", async () => {
  const cli = await many(["cat"]);
  await cli.run(RUN);
  const commands = ["status", "wait", "watch", "items", "download", "cancel", "delete --outputs"];
  commands.push("retry --dry-run", "retry --only cat");
  for (const command of commands) {
    const { code, stderr } = await cli.run([...command.split(" "), "out"]);
    expect([command, code, stderr]).toEqual([
      command,
      2,
      expect.stringContaining("was made by `imgbatch generate`"),
    ]);
  }
});

it("retry makes the failed images of such a directory, and refused ones only with their flag", async () => {
  const cli = await many(["cat", "bad dog", "owl"]);
  cli.fake.always(/bad/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
  cli.fake.answer(/owl/, ...times(4, { status: 502, html: "<h1>", headers: { "retry-after": "0" } }));
  expect((await cli.run(RUN)).code).toBe(4);
  const before = cli.fake.requests.length;
  const retried = await cli.run(["retry", "out"]);
  expect([retried.code, retried.stdout]).toEqual([4, "out\n"]);
  expect(retried.stderr).toContain("2 of 3 images on disk, 1 of them made now, 1 failed");
  expect(cli.fake.requests.slice(before).map(({ prompt }) => prompt)).toEqual(["owl"]);
  expect((await cli.run(["retry", "out", "--include-refused"])).code).toBe(4);
  expect(cli.fake.requests.at(-1)?.prompt).toBe("bad dog");
});

it("[GEN-10] [RUN-21] two that make the same run at once pay for each image once", async () => {
  const cli = await many(["cat", "dog"]);
  // The second one has patience for 2 s. Here it looks again when the first one has ended, however slow the disk is.
  const ended = gate();
  const { sleep } = systemClock;
  vi.spyOn(systemClock, "sleep").mockImplementation((ms, signal) =>
    ms === 50 ? ended.promise : sleep(ms, signal),
  );
  const runs = [cli.run([...RUN, "--json"]), cli.run([...RUN, "--json"])];
  void Promise.race(runs).then(() => ended.open());
  const both = await Promise.all(runs);
  expect(both.map(({ code }) => code)).toEqual([0, 0]);
  expect(both.map(({ json }) => json().made_count).sort()).toEqual([0, 2]);
  expect(cli.fake.requests).toHaveLength(2);
  expect(cli.list("out")).not.toContain(".imgbatch.lock");
});

it("[CLI-28] --events follows a run and a single image, each image without a batch", async () => {
  const cli = await many(["cat", "bad dog"]);
  const read = ({ stdout }: { stdout: string }) =>
    stdout
      .trimEnd()
      .split("\n")
      .map((line) => eventLineSchema.parse(JSON.parse(line)));
  cli.fake.always(/bad/, { body: { promptFeedback: { blockReason: "SAFETY" } } });
  cli.fake.answer(/cat/, error(503));
  expect(read(await cli.run([...RUN, "-j", "1", "--events", "-"]))).toMatchObject([
    { event: "run_started", command: "generate" },
    { event: "run_planned", directory: "out", item_count: 2, image_count: 2, batch_count: 0 },
    { event: "retry", delay_ms: 0 },
    { event: "file_saved", batch_id: null, custom_id: "cat", path: "images/cat.png" },
    { event: "item_ended", batch_id: null, custom_id: "cat", status: "success", error: null },
    { event: "item_ended", custom_id: "bad-dog", status: "failed", error: { code: "IMAGE_REFUSED" } },
    { event: "run_ended", ok: false, exit_code: 4, error: { code: "ITEMS_FAILED" } },
  ]);
  const again = read(await cli.run([...RUN, "--events", "-"])).map(({ event }) => event);
  expect(again).not.toContain("file_saved");
  cli.fake.always(/fox/, { images: [JPEG] });
  expect(read(await cli.run([...FOX, "--events", "-"]))).toMatchObject([
    { event: "run_started" },
    { event: "file_saved", batch_id: null, custom_id: null, path: "fox.jpg", bytes: JPEG.length },
    { event: "warning", message: "the image is image/jpeg: saved as fox.jpg, not fox.png" },
    { event: "run_ended", ok: true, exit_code: 0, error: null },
  ]);
});

it("a place that refuses this file, though permissions allow it, is found before anything is sent", async () => {
  const cli = await createInProcessCli();
  writeFileSync(cli.path("pipe.txt"), "");
  const places: [string[], number, RegExp][] = [
    [["-o", "/proc/fox.png"], 9, /Could not save \/proc\/fox\.png/],
    [["-o", `${"x".repeat(250)}.png`], 9, /the name is too long/],
    [["-o", "/dev/null", "--force"], 2, /\/dev\/null is not a regular file\. Nothing was sent\./],
    [["-o", "pipe.txt/fox.png"], 9, /Could not save/],
  ];
  for (const [args, expected, said] of places) {
    const { code, stderr } = await cli.run(["generate", "a fox", ...args]);
    expect({ args, code, stderr }).toEqual({ args, code: expected, stderr: expect.stringMatching(said) });
  }
  mkdirSync(cli.path("out"));
  writeFileSync(cli.path("out/images"), "in the way");
  writeFileSync(cli.path("p.jsonl"), '{"prompt":"a"}');
  const many = await cli.run(["generate", "--file", "p.jsonl", "-o", "out"]);
  expect([many.code, cli.fake.requests]).toEqual([6, []]);
  expect(cli.list().filter((name) => name.startsWith("."))).toEqual([]);
});
