import { setTimeout } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { json, type Reply, scriptedServer } from "../providers/upstream/scripted-server.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { Chain, model } from "../support/upstreams/chain.ts";
import { NATIVE_KEY } from "../support/upstreams/native.ts";

/** A service with an upstream of each API, and of none, whose answers the test scripts. */
async function services(paid: object = { free: true }, limits: object = {}) {
  const server = await scriptedServer();
  const key = { apiKeyEnv: "NATIVE_API_KEY", keyHeader: "x-goog-api-key" };
  const providers = [
    { name: "google", type: "native", baseUrl: `${server.url}/native`, ...key, models: ["native"], ...paid },
    { name: "open", type: "openai", baseUrl: `${server.url}/v1`, models: ["openai"], ...paid },
    { name: "local", type: "sdapi", baseUrl: server.url, models: ["sdapi"], ...paid },
  ];
  const models = ["native", "openai", "sdapi"].map(model);
  const chain = await Chain.startHere({ vendor: { preset: "google" }, models, providers, limits });
  onTestFinished(() => chain.close());
  const image = (await tinyPng()).toString("base64");
  /** The body of the newest request for an image. */
  const sent = () => JSON.parse(server.seen.filter(({ method }) => method === "POST").at(-1)?.text ?? "{}");
  const post = (path: string, body: object) =>
    chain.ask(path, { method: "POST", body: JSON.stringify(body) });
  return { server, chain, image, sent, post };
}

const picture = (data: string) => ({ inlineData: { mimeType: "image/png", data } });
const content = (parts: object[], more: object = {}) => ({
  candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }],
  modelVersion: "m",
  ...more,
});
const NATIVE_PATH = "/v1beta/models/native:generateContent";
const usageMetadata = {
  promptTokenCount: 326,
  candidatesTokenCount: 1332,
  thoughtsTokenCount: 337,
  totalTokenCount: 1995,
};
/** What a chat with everything in it says. */
const said = (data: string) => ({
  systemInstruction: { parts: [{ text: "always paint in watercolour" }], role: "user" },
  contents: [
    { role: "user", parts: [{ text: "a kite" }] },
    { role: "model", parts: [{ text: "here" }, { ...picture(data), thoughtSignature: "c2ln" }] },
    { role: "user", parts: [{ text: "make it blue" }] },
  ],
  safetySettings: [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }],
  tools: [{ googleSearch: {} }, { functionDeclarations: [{ name: "f", parameters: { file_name: 1 } }] }],
  toolConfig: { functionCallingConfig: { mode: "NONE" } },
  generationConfig: {
    temperature: 0.2,
    thinkingConfig: { thinkingLevel: "high" },
    responseModalities: ["IMAGE"],
    imageConfig: { imageSize: "1K", personGeneration: "ALLOW_ADULT" },
  },
});

it("a native upstream gets what a native request says, and its answer comes back with its words", async () => {
  const { server, image, sent, post } = await services();
  const grounding = { groundingMetadata: { webSearchQueries: ["kites"] } };
  const parts = [{ text: `A kite for ${NATIVE_KEY}.` }, { ...picture(image), thoughtSignature: "c2ln" }];
  const made = content(parts, { usageMetadata });
  server.reply = json({ ...made, candidates: [{ ...made.candidates[0], ...grounding }] });
  const asked = said(image);
  const answer = await post(NATIVE_PATH, asked);
  expect(answer.headers.get("x-imgbatch-ignored")).toBeNull();
  expect(await answer.json()).toMatchObject({
    candidates: [
      {
        content: {
          role: "model",
          parts: [{ text: "A kite for [API key]." }, { ...picture(image), thoughtSignature: "c2ln" }],
        },
        finishReason: "STOP",
        ...grounding,
      },
    ],
    usageMetadata,
  });
  // Without a ratio the vendor keeps that of the picture.
  expect(sent()).toEqual(asked);
});

it("lines of a native job say it, too, and their results have the upstream's words", async () => {
  const { server, chain, image, sent, post } = await services();
  server.reply = json(content([{ text: "A kite." }, picture(image)], { usageMetadata }));
  const asked = said(image);
  const requests = { requests: [{ request: asked, metadata: { key: "k" } }] };
  const path = "/v1beta/models/native:batchGenerateContent";
  const job = await (await post(path, { batch: { inputConfig: { requests } } })).json();
  const { name } = job as { name: string };
  await chain.until(name.replace("batches/", "imgbatch_"));
  expect(sent()).toEqual(asked);
  const ended = await (await chain.ask(`/v1beta/${name}`)).json();
  const [line] = (ended as never as { response: { inlinedResponses: { inlinedResponses: object[] } } })
    .response.inlinedResponses.inlinedResponses;
  expect(line).toMatchObject({
    metadata: { key: "k" },
    response: {
      candidates: [{ content: { parts: [{ text: "A kite." }, picture(image)] } }],
      usageMetadata,
    },
  });
});

it("another upstream refuses what changes the picture, and names what it leaves out of the rest", async () => {
  const { server, image, post } = await services();
  server.reply = (seen, ...rest) =>
    json(seen.url.startsWith("/sdapi") ? { images: [image] } : { data: [{ b64_json: image }] })(
      seen,
      ...rest,
    );
  const { systemInstruction, tools, ...rest } = said(image);
  for (const id of ["openai", "sdapi"]) {
    const path = `/v1beta/models/${id}:generateContent`;
    for (const [field, value] of Object.entries({ systemInstruction, tools })) {
      const before = server.seen.length;
      const answer = await post(path, { ...rest, [field]: value });
      const { error } = (await answer.json()) as { error: { details: unknown[] } };
      expect([answer.status, server.seen.length]).toEqual([400, before]);
      expect(error.details[0]).toMatchObject({ fieldViolations: [{ field }] });
    }
    // A chat without pictures: not all of these take one.
    const answer = await post(path, { ...rest, contents: [{ parts: [{ text: "a kite" }] }], labels: {} });
    expect(answer.status).toBe(200);
    const config = ["temperature", "thinkingConfig", "imageConfig"].map((name) => `generationConfig.${name}`);
    const names = ["labels", "toolConfig", "safetySettings", ...config].join(", ");
    expect(answer.headers.get("x-imgbatch-ignored")).toBe(names);
    expect(await answer.json()).not.toHaveProperty("usageMetadata");
  }
});

it("an upstream of OpenAI's API gets the fields of that API, and its usage and its prompt come back", async () => {
  const { server, chain, image, sent, post } = await services();
  const usage = { input_tokens: 50, output_tokens: 6240, total_tokens: 6290 };
  server.reply = json({ data: [{ b64_json: image, revised_prompt: "a blue kite" }], usage });
  const fields = { moderation: "low", user: "someone" };
  const asked = { model: "openai", prompt: "a kite", n: 2, ...fields, style: "vivid" };
  const answer = await post("/v1/images/generations", asked);
  expect(answer.headers.get("x-imgbatch-ignored")).toBe("style");
  expect(await answer.json()).toMatchObject({
    data: [{ revised_prompt: "a blue kite" }, { revised_prompt: "a blue kite" }],
    usage: { input_tokens: 100, output_tokens: 12_480, total_tokens: 12_580 },
  });
  expect(sent()).toMatchObject({ ...fields, prompt: "a kite" });
  expect(sent()).not.toHaveProperty("style");
  const elsewhere = await post("/v1/images/generations", { ...asked, n: 1, model: "sdapi" });
  expect(elsewhere.headers.get("x-imgbatch-ignored")).toBe("style, moderation, user");
  await elsewhere.arrayBuffer();
  // As a line of a batch.
  const form = new FormData();
  const line = { custom_id: "a", method: "POST", url: "/v1/images/generations", body: { ...asked, n: 1 } };
  form.append("purpose", "batch");
  form.append("file", new Blob([JSON.stringify(line)]), "lines.jsonl");
  const authorization = `Bearer ${chain.key}`;
  const file = await fetch(`${chain.url}/v1/files`, {
    method: "POST",
    body: form,
    headers: { authorization },
  });
  const { id: input_file_id } = (await file.json()) as { id: string };
  const wanted = { input_file_id, endpoint: "/v1/images/generations", completion_window: "24h" };
  const { id } = (await (await post("/v1/batches", wanted)).json()) as { id: string };
  await chain.until(id.replace("batch_", "imgbatch_"));
  expect(sent()).toMatchObject({ ...fields, prompt: "a kite" });
  const { output_file_id } = (await (await chain.ask(`/v1/batches/${id}`)).json()) as {
    output_file_id: string;
  };
  const result = await (await chain.ask(`/v1/files/${output_file_id}/content`)).json();
  expect(result).toMatchObject({
    response: { body: { data: [{ b64_json: image, revised_prompt: "a blue kite" }], usage } },
  });
});

const WHY = "The picture could not be shown.";
const cases: [string, Reply, string[], object][] = [
  [
    "a reason with a message",
    json({ candidates: [{ finishReason: "IMAGE_OTHER", finishMessage: WHY, index: 0 }], usageMetadata }),
    ["IMAGE_OTHER", WHY],
    { candidates: [{ finishReason: "IMAGE_OTHER", finishMessage: WHY, index: 0 }], usageMetadata },
  ],
  [
    "words alone",
    json(content([{ text: "I cannot draw a map.\nAsk for another place.\nOr a third line." }])),
    ["STOP", "I cannot draw a map. | Ask for another place."],
    content([{ text: "I cannot draw a map.\nAsk for another place.\nOr a third line." }]),
  ],
  [
    "a picture that is refused",
    json({ candidates: [{ finishReason: "IMAGE_SAFETY", finishMessage: WHY, index: 0 }] }),
    ["IMAGE_SAFETY", WHY],
    { candidates: [{ finishReason: "IMAGE_SAFETY", finishMessage: WHY }] },
  ],
];

it.each(cases)("says on every surface why there is no picture: %s", async (_name, reply, words, whole) => {
  const { server, chain, post } = await services();
  server.reply = reply;
  const native = await post(NATIVE_PATH, {
    contents: [{ parts: [{ text: "a kite" }] }],
    generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
  });
  expect([native.status, await native.json()]).toMatchObject([200, whole]);
  const open = await post("/v1/images/generations", { model: "native", prompt: "a kite" });
  const { error } = (await open.json()) as { error: { message: string } };
  expect(open.status).toBe(400);
  const { id } = await chain.submit("native", ["a kite"]);
  await chain.until(id);
  const [item] = await chain.items(id);
  for (const word of words) {
    expect(error.message).toContain(word);
    expect(item?.error?.message).toContain(word);
  }
  expect(error.message).not.toMatch(/prompt/i);
});

it("an upstream's own words about a field stand under its name, and never under one of another API", async () => {
  const { server, post } = await services();
  const message = "Invalid value: '1376x768'.";
  server.reply = json({ error: { message, type: "invalid_request_error", param: "size" } }, 400);
  const asked = { model: "openai", prompt: "a kite" };
  const open = await post("/v1/images/generations", asked);
  expect(await open.json()).toMatchObject({ error: { param: "size", message } });
  server.reply = json({ error: { message } }, 400);
  const bare = await post("/v1/images/generations", asked);
  expect(await bare.json()).toMatchObject({ error: { param: null, message } });
});

it("says to no library that a request may be repeated which may be paid and gave nothing", async () => {
  const { server, post } = await services();
  server.reply = json({ data: [{ b64_json: Buffer.from("no image at all").toString("base64") }] });
  const open = await post("/v1/images/generations", { model: "openai", prompt: "a kite" });
  expect([open.status, open.headers.get("x-should-retry")]).toEqual([424, "false"]);
  expect(await open.json()).toMatchObject({ error: { code: "REALTIME_MAY_BE_PAID" } });
  const native = await post("/v1beta/models/openai:generateContent", {
    contents: [{ parts: [{ text: "a kite" }] }],
    generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
  });
  expect([native.status, native.headers.get("x-should-retry")]).toEqual([500, "false"]);
  await native.arrayBuffer();
});

it.each([
  ["refuses an equal request within a minute", "stop"],
  ["sends an equal request once more within a minute, marks it, and refuses the next", "once"],
])("after a request that may be paid it %s", async (_what, unknownOutcome) => {
  const { server, post } = await services({ free: false }, { unknownOutcome });
  server.reply = json({ candidates: [{ content: { parts: [{ inlineData: { data: "bm8gaW1hZ2U=" } }] } }] });
  const seen = () => server.seen.filter(({ method }) => method === "POST").length;
  const ask = async (text: string) => {
    const answer = await post(NATIVE_PATH, {
      contents: [{ parts: [{ text }] }],
      generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
    });
    const { error } = (await answer.json()) as { error: { message: string } };
    expect(answer.headers.get("x-should-retry")).toBe("false");
    const saysHow = error.message.includes("wait a minute or send an Idempotency-Key");
    return [answer.status, answer.headers.get("x-imgbatch-may-be-paid-twice"), seen(), saysHow];
  };
  const isOnce = unknownOutcome === "once";
  const first = isOnce ? 500 : 409;
  expect(await ask("a kite")).toEqual([first, null, 1, false]);
  if (isOnce) expect(await ask("a kite")).toEqual([409, "true", 2, false]);
  const sent = seen();
  expect(await ask("a kite")).toEqual([409, null, sent, true]);
  expect(await ask("a kite")).toEqual([409, null, sent, true]);
  expect(await ask("another kite")).toEqual([first, null, sent + 1, false]);
});

it.each([
  [NATIVE_PATH, { contents: [{ parts: [{ text: "a kite" }] }], generationConfig: { imageConfig: {} } }, 409],
  ["/v1/images/generations", { model: "openai", prompt: "a kite" }, 424],
])(
  "does not pay again for the repeat of a library whose connection a proxy has cut: %s",
  async (path, body, status) => {
    const { server, chain, post } = await services({ free: false });
    const cut = new AbortController();
    let isClosed = false;
    server.reply = (_seen, answer, socket) => {
      if (isClosed) answer.end();
      socket.once("close", () => {
        isClosed = true;
      });
      cut.abort();
    };
    const seen = () => server.seen.filter(({ method }) => method === "POST").length;
    const first = chain.ask(path, { method: "POST", body: JSON.stringify(body), signal: cut.signal });
    await expect(first).rejects.toThrow();
    await expect.poll(() => isClosed).toBe(true);
    // Libraries pause, too.
    await setTimeout(500);
    const repeated = await post(path, body);
    expect([repeated.status, repeated.headers.get("x-should-retry"), seen()]).toEqual([status, "false", 1]);
    expect(JSON.stringify(await repeated.json())).toContain("wait a minute or send an Idempotency-Key");
  },
);

it("names the number of a line that cannot be read, and keeps its name", async () => {
  const { server, chain, image, post } = await services();
  server.reply = json({ data: [{ b64_json: image }] });
  const line = (id: string, more: object = {}) =>
    JSON.stringify({
      custom_id: id,
      method: "POST",
      url: "/v1/images/generations",
      body: { model: "openai", prompt: "a kite", ...more },
    });
  const lines = [line("a"), "", '{"custom_id": "b", not json}', "{not json}", line("e", { image: "data:," })];
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", new Blob([lines.join("\n")]), "lines.jsonl");
  const headers = { authorization: `Bearer ${chain.key}` };
  const file = await fetch(`${chain.url}/v1/files`, { method: "POST", body: form, headers });
  const { id: input_file_id } = (await file.json()) as { id: string };
  const wanted = { input_file_id, endpoint: "/v1/images/generations", completion_window: "24h" };
  const { id } = (await (await post("/v1/batches", wanted)).json()) as { id: string };
  await chain.until(id.replace("batch_", "imgbatch_"));
  const { error_file_id } = (await (await chain.ask(`/v1/batches/${id}`)).json()) as {
    error_file_id: string;
  };
  const errors = (await (await chain.ask(`/v1/files/${error_file_id}/content`)).text()).trim().split("\n");
  const told = errors.map((text) => {
    const { custom_id, response } = JSON.parse(text);
    return [custom_id, response.body.error.message.slice(0, 7), response.body.error.param];
  });
  expect(told).toEqual([
    ["b", "line 3:", null],
    [null, "line 4:", null],
    ["e", "line 5:", "image"],
  ]);
});
