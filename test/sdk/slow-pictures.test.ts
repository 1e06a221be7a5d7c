import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { generateImage } from "../../src/client/realtime.ts";
import { createServiceHttp } from "../../src/client/service-http.ts";
import { type Clock, systemClock } from "../../src/kernel/clock.ts";
import { areInstalled, type Library, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

/** The time of the service passes this many times as fast as ours. */
const FACTOR = 20;
const quickClock: Clock = {
  nowMs: () => systemClock.nowMs(),
  monotonicMs: () => systemClock.monotonicMs() * FACTOR,
  sleep: (ms, signal) => systemClock.sleep(ms / FACTOR, signal),
};
/** Proxies close a connection on which nothing comes from the service for this long, such as nginx. */
const PROXY_IDLE_MS = 60_000 / FACTOR;
const SLOW = "[[delay:100s]]";

/** A proxy that closes a connection when no answer comes through it for a while. */
async function startIdleProxy(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let cut = 0;
  const proxy = createServer((client) => {
    const service = connect(Number(port), hostname);
    for (const socket of [client, service]) {
      sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        client.destroy();
        service.destroy();
      });
    }
    client.pipe(service).pipe(client);
    client.on("data", () => service.setTimeout(PROXY_IDLE_MS));
    service.on("data", (bytes) => service.setTimeout(bytes.includes("\r\n0\r\n\r\n") ? 0 : PROXY_IDLE_MS));
    service.on("timeout", () => {
      cut++;
      service.destroy();
    });
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return {
    url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut: () => cut,
    close: () => {
      for (const socket of sockets) socket.destroy();
      proxy.close();
    },
  };
}

interface Usage {
  data: { image_count: number }[];
}
interface Content {
  role: string;
  parts: { text?: string; inlineData?: object }[];
}
interface Answer {
  candidates?: { content?: Content }[];
  usageMetadata?: { promptTokensDetails?: { modality: string }[] };
}
const partsOf = (answers: readonly Answer[]) =>
  answers.flatMap(({ candidates }) => candidates?.[0]?.content?.parts ?? []);
const picturesIn = (parts: Content["parts"]) => parts.filter(({ inlineData }) => inlineData).length;
const isEdit = (answer: Answer | undefined) =>
  answer?.usageMetadata?.promptTokensDetails?.some(({ modality }) => modality === "IMAGE");

describe.skipIf(!areInstalled)("behind a proxy that closes idle connections", () => {
  let service: SdkService;
  let proxy: Awaited<ReturnType<typeof startIdleProxy>>;
  beforeAll(async () => {
    service = await startSdkService({ concurrentRequests: 20 }, false, quickClock);
    proxy = await startIdleProxy(service.url);
  });
  afterAll(async () => {
    proxy?.close();
    await service?.close();
  });
  const open = (library: Library, options: object) => {
    const sdk: Sdk = startSdk(library, { apiKey: service.apiKey, ...options });
    onTestFinished(() => sdk.close());
    return sdk;
  };

  for (const library of ["@google/generative-ai", "genai-1", "genai-2", "genai-3"] as const)
    for (const [speed, words] of [
      ["fast", "a kite"],
      ["slow", `a kite ${SLOW}`],
    ] as const)
      it(`a streamed chat of ${library} keeps its history after a ${speed} picture`, async () => {
        const sdk = open(library, { httpOptions: { baseUrl: proxy.url } });
        const first = await sdk.call<Answer[]>("chat.stream", { model: MODEL, message: words });
        expect(first.error).toBeUndefined();
        expect(picturesIn(partsOf(first.value))).toBe(1);
        const history = (await sdk.call<Content[]>("chat.history")).value;
        expect(history[0]).toMatchObject({ role: "user", parts: [{ text: words }] });
        expect(history.slice(1).map(({ role }) => role)).toContain("model");
        const second = await sdk.call<Answer[]>("chat.stream", { model: MODEL, message: "make it blue" });
        expect(second.error).toBeUndefined();
        expect(picturesIn(partsOf(second.value))).toBe(1);
        // The deprecated library keeps no picture of a stream.
        if (library !== "@google/generative-ai") expect(isEdit(second.value.at(-1))).toBe(true);
        expect(proxy.cut()).toBe(0);
      }, 30_000);

  for (const library of ["openai", "openai-7"] as const)
    it(`a stream of ${library} gives its picture, however long it takes`, async () => {
      const sdk = open(library, { baseURL: `${proxy.url}/v1`, maxRetries: 0 });
      const asked = { model: MODEL, prompt: `a kite ${SLOW}`, stream: true };
      const { value, error } = await sdk.call<{ type: string }[]>("images.generate", asked);
      expect(error).toBeUndefined();
      expect(value.map(({ type }) => type)).toEqual(["image_generation.completed"]);
      expect(proxy.cut()).toBe(0);
    }, 30_000);

  it("a request without a stream is cut, and asked for again under its key until its picture is there", async () => {
    const paidImages = async () => {
      const headers = { authorization: `Bearer ${service.apiKey}` };
      const { data } = (await (await fetch(`${service.url}/v1/usage`, { headers })).json()) as Usage;
      return data.reduce((sum, { image_count }) => sum + image_count, 0);
    };
    const [before, paidBefore] = [proxy.cut(), await paidImages()];
    const http = createServiceHttp({
      baseUrl: proxy.url,
      apiKey: service.apiKey,
      clock: quickClock,
      random: Math.random,
    });
    const wanted = {
      model: MODEL,
      prompt: `a kite ${SLOW}`,
      images: [],
      aspectRatio: null,
      size: null,
      seed: null,
    };
    const options = { mimeType: null, quality: null, background: null, negativePrompt: null };
    const made = await generateImage(http, { ...wanted, ...options });
    expect(proxy.cut()).toBeGreaterThan(before);
    expect(made.attempts).toBe(1 + proxy.cut() - before);
    expect(await paidImages()).toBe(paidBefore + 1);
  }, 30_000);
});
