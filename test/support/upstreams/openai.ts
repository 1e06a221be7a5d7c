import {
  type Answer,
  type FakeUpstream,
  type ImageService,
  isForm,
  startUpstream,
  type Twist,
} from "./fake-upstream.ts";
import { imageOf, lookAt } from "./images.ts";
import { DIALECTS, type Dialect, json, openaiErrors, type Wish } from "./openai-dialects.ts";

export interface OpenaiOptions {
  dialect?: Dialect;
  key?: string;
  /** The header of the key; by default `Authorization: Bearer`. */
  keyHeader?: string;
  models?: readonly string[];
}

export const OPENAI_KEY = "sk-proj-fakeOpenaiKeyOfTheTests0123456789";

/** OpenAI Images, or a service that speaks it in its own way. `url` has no path: add `dialect.base`. */
export async function startOpenai(options: OpenaiOptions = {}): Promise<FakeUpstream> {
  const { dialect = DIALECTS.openai, key = OPENAI_KEY, keyHeader } = options;
  const { models = [dialect.model] } = options;
  const files = new Map<string, Buffer>();
  const paths = { generate: `${dialect.base}${dialect.path}`, edit: `${dialect.base}${dialect.editPath}` };
  const pathOf = (path: string) => path.split("?")[0] ?? "";
  const service: ImageService = {
    kindOf: (method, path) => {
      if (pathOf(path).startsWith("/files/")) return "files";
      if (method === "POST" && Object.values(paths).includes(pathOf(path))) return "images";
      return method === "GET" && pathOf(path).startsWith(`${dialect.base}/models`) ? "models" : "other";
    },
    promptOf: (body) => {
      const prompt = fieldsOf(body).prompt;
      return typeof prompt === "string" ? prompt : null;
    },
    answer: async (request, twist) => {
      if (request.kind === "files") {
        const file = files.get(pathOf(request.path));
        return file
          ? { status: 200, headers: await typeOf(file), body: file }
          : openaiErrors.noPath(request.path);
      }
      const sent = keyHeader ? request.headers[keyHeader.toLowerCase()] : request.headers.authorization;
      if (sent !== (keyHeader ? key : `Bearer ${key}`)) return openaiErrors.invalidKey();
      if (request.kind === "other") return openaiErrors.noPath(request.path);
      if (request.kind === "models") {
        const data = models.map((id) => ({
          id,
          object: "model",
          created: 1_790_000_000,
          owned_by: "system",
        }));
        return json(200, { object: "list", data });
      }
      const fields = fieldsOf(request.body);
      if (typeof fields.model === "string" && !models.includes(fields.model))
        return openaiErrors.noModel(fields.model);
      const isEdit = dialect.editPath !== dialect.path && pathOf(request.path) === paths.edit;
      const wish = await dialect.read(request, fields, isEdit);
      return "status" in wish ? wish : made(wish, twist, (image) => serve(files, image));
    },
  };
  const upstream = await startUpstream(service);
  const serve = (known: Map<string, Buffer>, image: Buffer) => {
    const path = `/files/${known.size}`;
    known.set(path, image);
    return `${upstream.url}${path}`;
  };
  const made = async (wish: Wish, twist: Twist, address: (image: Buffer) => string): Promise<Answer> => {
    const { prompt, count, usage, answerAs } = wish;
    const type = twist.type ?? wish.type;
    const size = twist.size ?? { width: wish.width, height: wish.height };
    const images: Buffer[] = [];
    for (let index = 0; index < (twist.images ?? count); index++)
      images.push(twist.bytes ?? (await imageOf(prompt, { ...size, type, index })));
    const asUrl = twist.url ?? (answerAs === "url" ? true : undefined);
    const data = images.map((image) =>
      asUrl === undefined
        ? { b64_json: image.toString("base64") }
        : { url: asUrl === true ? address(image) : asUrl },
    );
    return { ...json(200, { created: 1_790_000_000, data, ...usage, ...twist.more }), images };
  };
  return upstream;
}

/** The fields of a JSON body or of a form. */
function fieldsOf(body: unknown): Record<string, unknown> {
  if (isForm(body)) return Object.fromEntries(body.fields);
  return typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
}

async function typeOf(image: Buffer): Promise<Record<string, string>> {
  return { "content-type": `image/${(await lookAt(image))?.type ?? "png"}` };
}
