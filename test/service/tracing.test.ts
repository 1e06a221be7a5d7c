import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { parseCredentials } from "../../src/contract/data-directory.ts";
import { runInProcess } from "../support/cli-in-process.ts";
import { listening } from "../support/listening.ts";
import { BIN, cleanEnvironment, startNode } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";
import { OPENAI_KEY } from "../support/upstreams/openai.ts";
import { startFake } from "../upstreams/services.ts";

interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  attributes: { key: string; value: Record<string, unknown> }[];
}

interface Export {
  resourceSpans: { resource: Pick<Span, "attributes">; scopeSpans: { spans: Span[] }[] }[];
}

const factsOf = ({ attributes }: Pick<Span, "attributes">) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]));

/** A collector of OpenTelemetry that takes JSON. */
async function startCollector() {
  const got: { bodies: string[]; headers: object[] } = { bodies: [], headers: [] };
  const server = createServer(async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece);
    got.headers.push(request.headers);
    got.bodies.push(Buffer.concat(pieces).toString("latin1"));
    response.setHeader("content-type", "application/json").end("{}");
  });
  const url = await listening(server);
  const exports = () => got.bodies.map((body) => JSON.parse(body) as Export);
  const resources = () => exports().flatMap(({ resourceSpans }) => resourceSpans);
  const spans = () => resources().flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans));
  return { url, got, resources, spans };
}

const PROMPT = "a lighthouse that nobody may know of";
const TRACE = "0af7651916cd43dd8448eb211c80319c";

/** A service in a process of its own that makes images with a fake upstream. */
async function serve(variables: Record<string, string>) {
  const { fake, entry, model } = await startFake("openai");
  onTestFinished(() => fake.close());
  const cwd = await tempDir();
  const data = join(cwd, "data");
  const config = {
    models: [{ id: "painter", prices: { "1K": 0 } }],
    providers: [{ name: "studio", models: { painter: model }, free: true, ...entry }],
  };
  writeFileSync(join(cwd, "service.json"), JSON.stringify(config));
  writeFileSync(join(cwd, "prompts.txt"), `${PROMPT}\n${PROMPT} by night\n`);
  const env = cleanEnvironment({ OPENAI_API_KEY: OPENAI_KEY, IMGBATCH_DATA: data, ...variables });
  const running = startNode([BIN, "serve", "--port", "0", "--config", "service.json"], { cwd, env });
  let said = "";
  running.child.stderr?.on("data", (chunk) => {
    said += chunk;
  });
  const { url } = JSON.parse(await running.line()) as { url: string };
  const { api_key: apiKey } = parseCredentials(readFileSync(join(data, "credentials.json"), "utf8"));
  const stop = async () => {
    running.child.kill("SIGTERM");
    return running.exited;
  };
  const submit = (...more: string[]) =>
    runInProcess(["submit", "prompts.txt", "-o", "out", "--model", "painter", "--data", data, ...more], {
      cwd,
    });
  return { fake, url, apiKey, stop, submit, said: () => said };
}

describe("traces", () => {
  it("[TRACE-1] [TRACE-2] follow requests and items to the upstream and back, and hold neither prompts nor keys", async () => {
    const collector = await startCollector();
    const { fake, url, apiKey, stop, submit } = await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_HEADERS: "x-tenant=ours",
      OTEL_SERVICE_NAME: "our-images",
    });
    const made = await fetch(`${url}/v1beta/models/painter:generateContent?alt=json`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-vendorx-api-key": apiKey,
        traceparent: `00-${TRACE}-b7ad6b7169203331-01`,
        baggage: "customer=somebody-well-known",
      },
      body: JSON.stringify({
        contents: [{ role: "user", parts: [{ text: PROMPT }] }],
        generationConfig: { responseModalities: ["IMAGE"], imageConfig: {} },
      }),
    });
    expect([made.status, await made.text()]).toEqual([200, expect.any(String)]);
    expect(await submit()).toMatchObject({ code: 0 });
    expect((await stop()).code).toBe(0);

    const spans = collector.spans();
    const named = (name: string, traceId?: string) =>
      spans.filter((span) => span.name === name && (traceId === undefined || span.traceId === traceId));
    // The caller's trace goes on to the upstream; what else the caller says of itself does not.
    const [request] = named("request", TRACE);
    expect(request?.parentSpanId).toBe("b7ad6b7169203331");
    const [call] = named("upstream call", TRACE);
    expect(call?.parentSpanId).toBe(request?.spanId);
    const asked = fake.requests.filter(({ kind }) => kind === "images");
    expect(asked.map(({ headers }) => headers.baggage)).toEqual([undefined, undefined, undefined]);
    expect(asked[0]?.headers.traceparent).toBe(`00-${TRACE}-${call?.spanId}-01`);

    // Each item has a trace, which its batch's id joins to the request that made the batch.
    const creates = spans.filter((span) => span.name === "request" && "imgbatch.batch.id" in factsOf(span));
    expect(creates.map((span) => factsOf(span)["http.route"])).toEqual(["/v1/images/batches"]);
    const batch = { "imgbatch.batch.id": creates.map((span) => factsOf(span)["imgbatch.batch.id"])[0] };
    const items = named("item");
    expect(items).toHaveLength(2);
    for (const item of items) {
      expect(factsOf(item)).toMatchObject({ ...batch, "imgbatch.item.outcome": "success" });
      const parts = spans.filter(({ parentSpanId }) => parentSpanId === item.spanId);
      expect(parts.map(({ name }) => name).sort()).toEqual(["claim", "store", "upstream call"]);
      const leaving = parts.find(({ name }) => name === "upstream call");
      const traceparent = `00-${item.traceId}-${leaving?.spanId}-01`;
      expect(asked.filter(({ headers }) => headers.traceparent === traceparent)).toHaveLength(1);
    }
    expect(named("settle").map(factsOf)).toEqual([batch]);

    expect(new Set(collector.resources().map(({ resource }) => factsOf(resource)["service.name"]))).toEqual(
      new Set(["our-images"]),
    );
    expect(collector.got.headers[0]).toMatchObject({ "x-tenant": "ours" });
    const everything = collector.got.bodies.join("\n");
    for (const secret of [PROMPT, "lighthouse", apiKey, OPENAI_KEY, "alt=json", "somebody-well-known"])
      expect(everything).not.toContain(secret);
  });

  it("[TRACE-3] a collector that is away neither fails nor delays anything, and is reported once", async () => {
    const { fake, stop, submit, said } = await serve({
      // Nothing listens there.
      OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://127.0.0.1:1/v1/traces",
      OTEL_LOG_LEVEL: "debug",
      OTEL_BSP_SCHEDULE_DELAY: "50",
    });
    expect(await submit()).toMatchObject({ code: 0 });
    expect(fake.requests.filter(({ headers }) => headers.traceparent !== undefined)).not.toEqual([]);
    await expect.poll(said).toContain("traces do not reach their collector");
    const { code, stderr } = await stop();
    expect(code).toBe(0);
    expect(stderr.match(/traces do not reach their collector/g)).toHaveLength(1);
  });

  it("[TRACE-3] a collector that never answers keeps no process from its end", async () => {
    const url = await listening(createServer(() => {}));
    const { submit, stop } = await serve({
      OTEL_EXPORTER_OTLP_ENDPOINT: url,
      OTEL_EXPORTER_OTLP_TIMEOUT: "600000",
    });
    expect(await submit()).toMatchObject({ code: 0 });
    expect((await stop()).code).toBe(0);
  });

  it.each([{ OTEL_SDK_DISABLED: "true" }, { OTEL_TRACES_EXPORTER: "none" }])(
    "[TRACE-1] %j sends nothing to the collector or to the upstream",
    async (off) => {
      const collector = await startCollector();
      const { fake, stop, submit } = await serve({ OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, ...off });
      expect(await submit()).toMatchObject({ code: 0 });
      expect((await stop()).code).toBe(0);
      expect(collector.got.bodies).toEqual([]);
      expect(fake.requests.filter(({ headers }) => headers.traceparent !== undefined)).toEqual([]);
    },
  );
});
