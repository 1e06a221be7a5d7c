import sharp from "sharp";
import type { SizePx } from "../../src/contract/image-formats.ts";
import type { NativeBody } from "../../src/contract/native-api.ts";
import { MODEL, type TestService } from "./service.ts";

type Json = Record<string, unknown>;

interface Target {
  model?: string;
  /** With a query when there is one. */
  verb?: string;
  prefix?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** A request with one text part, and further parts behind it. */
export function content(prompt: string, imageConfig: Json = {}, parts: Json[] = []): Json {
  return {
    contents: [{ role: "user", parts: [{ text: prompt }, ...parts] }],
    generationConfig: { responseModalities: ["TEXT", "IMAGE"], imageConfig },
  };
}

export function imagePart(bytes: Buffer, mimeType = "image/png"): Json {
  return { inlineData: { mimeType, data: bytes.toString("base64") } };
}

/** Asks with the local key in the vendor's header. */
export function generate(service: TestService, body: unknown, target: Target = {}): Promise<Response> {
  const { model = MODEL, verb = "generateContent", prefix = "/v1beta", signal } = target;
  const headers = { "x-vendorx-api-key": service.credentials.api_key, ...target.headers };
  return fetch(`${service.url}${prefix}/models/${model}:${verb}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    ...(signal ? { signal } : {}),
  });
}

export async function answerOf(answer: Response): Promise<NativeBody<"GenerateContentAnswer">> {
  return (await answer.json()) as NativeBody<"GenerateContentAnswer">;
}

export async function errorOf(answer: Response): Promise<NativeBody<"NativeError">["error"]> {
  return ((await answer.json()) as NativeBody<"NativeError">).error;
}

/** `[status, status of the error, field of its first violation]` */
export async function refusalOf(answer: Response): Promise<[number, string, string | undefined]> {
  const { status, details = [] } = await errorOf(answer);
  const violations = details.find((detail) => detail["@type"].endsWith(".BadRequest"))?.fieldViolations;
  return [answer.status, status, (violations as { field: string }[] | undefined)?.[0]?.field];
}

export function imagesOf(answer: NativeBody<"GenerateContentAnswer">): { mimeType: string; bytes: Buffer }[] {
  const parts = answer.candidates?.flatMap((candidate) => candidate.content?.parts ?? []) ?? [];
  return parts.flatMap(({ inlineData }) =>
    inlineData ? [{ mimeType: inlineData.mimeType, bytes: Buffer.from(inlineData.data, "base64") }] : [],
  );
}

/** A plain picture of exactly this size. */
export function picture({ widthPx: width, heightPx: height }: SizePx): Promise<Buffer> {
  return sharp({ create: { width, height, channels: 3, background: "#456" } })
    .png()
    .toBuffer();
}
