import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { FAKE_KEY, png } from "./fake-service.ts";
import { listen } from "./listen.ts";

/** The fake's answer to one request. */
export type NativeAnswer =
  /** A whole answer with these images; `type` is what it says of them. */
  | { images: Buffer[]; type?: string; more?: object }
  /** 200 with this body: text as it is, anything else as JSON. */
  | { body: unknown }
  | { status: number; message?: string; details?: object[]; headers?: Record<string, string>; html?: string }
  | { reset: true }
  | { silent: true }
  /** Says that the whole answer comes, and breaks off after this many bytes. */
  | { cutAt: number; headers?: Record<string, string> };

export interface NativeRequest {
  path: string;
  headers: IncomingMessage["headers"];
  prompt: string;
  json: {
    contents: { parts: { text?: string; inlineData?: { mimeType: string; data: string } }[] }[];
    generationConfig: Record<string, unknown>;
  };
}

export interface FakeNative {
  url: string;
  /** Requests for images, in the order of their arrival. */
  requests: NativeRequest[];
  /** The most requests that were under way at one moment. */
  mostUnderWay: number;
  /** Holds answers back until it resolves. */
  hold: Promise<void>;
  /** The next requests whose prompt matches get these, one each; all others get an image. */
  answer(prompt: RegExp, ...answers: NativeAnswer[]): void;
  /** All requests whose prompt matches get this. */
  always(prompt: RegExp, answer: NativeAnswer): void;
  models: object[];
  close(): Promise<void>;
}

const STATUSES: Record<number, string> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  429: "RESOURCE_EXHAUSTED",
};

/** A native real-time service made of nothing, with every kind of wrong answer on demand. On a free loopback port. */
export async function startFakeNative(): Promise<FakeNative> {
  const planned: { prompt: RegExp; answer: NativeAnswer; isOnce: boolean }[] = [];
  let underWay = 0;
  const fake: FakeNative = {
    url: "",
    requests: [],
    mostUnderWay: 0,
    hold: Promise.resolve(),
    answer: (prompt, ...answers) => {
      planned.push(...answers.map((answer) => ({ prompt, answer, isOnce: true })));
    },
    always: (prompt, answer) => {
      planned.push({ prompt, answer, isOnce: false });
    },
    models: ["words-only", "vendorx-3.1-flash-image", "vendorx-3-pro-image"].map((id) => ({
      name: `models/${id}`,
      supportedGenerationMethods: id === "words-only" ? ["countTokens"] : ["generateContent"],
    })),
    close: () => listening.close(),
  };
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    if (request.headers.authorization !== `Bearer ${FAKE_KEY}`) {
      refuse(response, { status: 401 });
      return;
    }
    if (request.method === "GET") {
      send(response, 200, { models: fake.models });
      return;
    }
    const json = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    const prompt = json.contents[0].parts[0].text;
    fake.requests.push({ path: request.url ?? "", headers: request.headers, prompt, json });
    fake.mostUnderWay = Math.max(fake.mostUnderWay, ++underWay);
    let isOver = false;
    const end = () => {
      if (!isOver) underWay--;
      isOver = true;
    };
    response.on("close", end);
    const at = planned.findIndex((plan) => plan.prompt.test(prompt));
    const answer = planned[at]?.answer ?? { images: [png(prompt)] };
    if (planned[at]?.isOnce) planned.splice(at, 1);
    await fake.hold;
    // The client may send its next request before this response is closed.
    if (!("silent" in answer)) end();
    give(request, response, answer, prompt);
  });
  const listening = await listen(server);
  fake.url = listening.url;
  return fake;
}

function give(
  request: IncomingMessage,
  response: ServerResponse,
  answer: NativeAnswer,
  prompt: string,
): void {
  if ("silent" in answer) return;
  if ("reset" in answer) request.socket.destroy();
  else if ("status" in answer) refuse(response, answer);
  else if ("body" in answer) send(response, 200, answer.body);
  else if ("images" in answer)
    send(response, 200, { ...withImages(answer.images, answer.type), ...answer.more });
  else {
    const whole = JSON.stringify(withImages([png(prompt)]));
    const headers = { "content-type": "application/json", "content-length": whole.length };
    response.writeHead(200, { ...headers, ...answer.headers });
    response.write(whole.slice(0, answer.cutAt), () => request.socket.destroy());
  }
}

/** The body of a good answer. */
export function withImages(images: readonly Buffer[], mimeType = "image/png") {
  const parts = images.map((image) => ({ inlineData: { mimeType, data: image.toString("base64") } }));
  return {
    candidates: [
      { content: { role: "model", parts: [{ text: "Here." }, ...parts] }, finishReason: "STOP", index: 0 },
    ],
    usageMetadata: { totalTokenCount: 7 },
    modelVersion: "drawn-1",
  };
}

function refuse(response: ServerResponse, answer: Extract<NativeAnswer, { status: number }>): void {
  const { status, message = "No.", details = [], headers = {}, html } = answer;
  if (html !== undefined) {
    response.writeHead(status, { "content-type": "text/html", ...headers }).end(html);
    return;
  }
  const error = { code: status, message, status: STATUSES[status] ?? "UNAVAILABLE", details };
  send(response, status, { error }, headers);
}

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  response
    .writeHead(status, { "content-type": "application/json", "x-request-id": "req_native", ...headers })
    .end(text);
}
