import sharp from "sharp";
import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import type { TestService } from "./service.ts";

type Body = FormData | object | string;

/** Sends a request of OpenAI's API for images with the local key. */
export function ask(
  service: Pick<TestService, "url" | "credentials">,
  path: string,
  body: Body,
  init: RequestInit & { headers?: Record<string, string> } = {},
): Promise<Response> {
  const isForm = body instanceof FormData;
  const headers = {
    authorization: `Bearer ${service.credentials.api_key}`,
    ...(isForm ? {} : { "content-type": "application/json" }),
    ...init.headers,
  };
  const sent = isForm || typeof body === "string" ? body : JSON.stringify(body);
  return fetch(service.url + path, { method: "POST", ...init, headers, body: sent });
}

export const generate = (service: TestService, body: Body, init?: Parameters<typeof ask>[3]) =>
  ask(service, "/v1/images/generations", body, init);
export const edit = (service: TestService, body: Body, init?: Parameters<typeof ask>[3]) =>
  ask(service, "/v1/images/edits", body, init);

/** A form; a buffer is a file. */
export function form(...fields: readonly (readonly [name: string, value: string | Buffer])[]): FormData {
  const data = new FormData();
  for (const [name, value] of fields) {
    if (typeof value === "string") data.append(name, value);
    else data.append(name, new Blob([Uint8Array.from(value)], { type: "image/png" }), "image.png");
  }
  return data;
}

export async function imagesOf(answer: Response): Promise<OpenaiBody<"Images"> & { bytes: Buffer[] }> {
  const body = await answer.text();
  if (answer.status !== 200) throw new Error(`answered ${answer.status}: ${body}`);
  const images = JSON.parse(body) as OpenaiBody<"Images">;
  return { ...images, bytes: images.data.map(({ b64_json = "" }) => Buffer.from(b64_json, "base64")) };
}

/** `WIDTHxHEIGHT format` of each image, as its bytes show it. */
export function shapesOf(bytes: readonly Buffer[]): Promise<string[]> {
  return Promise.all(
    bytes.map(async (image) => {
      const { width, height, format } = await sharp(image).metadata();
      return `${width}x${height} ${format}`;
    }),
  );
}

export async function errorOf(answer: Response): Promise<OpenaiBody<"OpenaiError">["error"]> {
  return ((await answer.json()) as OpenaiBody<"OpenaiError">).error;
}

/** `[status, code, param]` */
export async function refusalOf(answer: Response): Promise<[number, string, string | null]> {
  const { code, param } = await errorOf(answer);
  return [answer.status, code, param];
}

/** The events of a stream, with their names; comments are skipped. */
export function eventsOf(
  text: string,
): { name: string; data: OpenaiBody<"ImageEvent"> & OpenaiBody<"OpenaiError"> }[] {
  return text
    .split("\n\n")
    .filter((event) => event !== "" && !event.startsWith(":"))
    .map((event) => {
      const [, name = "", data = ""] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
      return { name, data: JSON.parse(data) };
    });
}
