import { z } from "zod";
import type { EntryOf } from "../../contract/provider-entries.ts";
import {
  type GeneratedImages,
  type ImageRequest,
  ProviderError,
  type ReferenceImage,
} from "../../domain/ports/image-provider.ts";
import { isObject } from "../../kernel/json.ts";
import { joinTurns, truncateCodePoints } from "../../kernel/text.ts";
import { pixelsOf } from "../catalogue/catalogue.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";
import { type ImagesJson, refuseMany } from "../upstream/answer-images.ts";
import { upstreamWords } from "../upstream/answer-json.ts";
import { ambiguous } from "../upstream/classify.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { jsonBody, ReferenceText } from "../upstream/request-body.ts";

/** How long the call that stops an image may take. */
const INTERRUPT_MS = 2000;

/**
 * Makes images with a server that speaks the API of the Stable Diffusion web UI: A1111, Forge, SD.Next, sd-server. With a
 * reference image it calls img2img, else txt2img.
 */
export function createSdapiAdapter(entry: EntryOf<"sdapi">, deps: AdapterDeps): UpstreamAdapter {
  // One connection more than there are images at once: for a probe while images are made.
  const http = new UpstreamHttp({ ...entry, concurrency: entry.concurrency + 1 }, deps);
  const headers = authorization(entry, deps);
  const pathOf = (name: string) => `/sdapi/v1/${name}`;
  let running = 0;

  const interrupt = async () => {
    const late = new AbortController();
    const done = new AbortController();
    deps.clock.sleep(INTERRUPT_MS, done.signal).then(
      () => late.abort(),
      () => {},
    );
    const call = { method: "POST", path: pathOf("interrupt"), headers, body: jsonBody({}) } as const;
    // The image is given up in any case.
    await http.json(call, late.signal).catch(() => {});
    done.abort();
  };

  return {
    address: entry.baseUrl,
    takes: {
      maxReferences: 1,
      usesFirstReferences: true,
      ratios: "any",
      tiers: "any",
      pixelsOf: pixelsOf(entry),
      options: ["seed", "negativePrompt", "mask"],
    },
    generate: async (request, signal, onSent, onAnswered) => {
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const mask = request.mask && (await paintedMask(request.mask));
      const body = jsonBody(bodyOf(entry, request, asked, mask));
      let isSent = false;
      running++;
      try {
        const path = pathOf(request.references.length === 0 ? "txt2img" : "img2img");
        const markSent = () => {
          onSent();
          isSent = true;
        };
        const unused = request.references.length - 1;
        const notes = unused > 0 ? ["Only the first reference image was used."] : [];
        const on = { onSent: markSent, onAnswered };
        return await http.images({ method: "POST", path, headers, body, asked }, signal, on, (answer) => ({
          ...readImages(entry.name, answer, request.seed),
          notes,
        }));
      } catch (error) {
        // The server stops the image that it is making, which may be another one of ours if there are several.
        if (signal.aborted && isSent && running === 1) await interrupt();
        throw withHint(error);
      } finally {
        running--;
      }
    },
    probe: async (signal) => {
      await http.json({ method: "GET", path: pathOf("options"), headers }, signal).catch((error) => {
        throw withHint(error);
      });
    },
    close: () => http.close(),
  };
}

/** Some of these servers have the interface only when they are told to at their start. */
function withHint(error: unknown): unknown {
  if (!(error instanceof ProviderError) || error.upstreamStatus !== 404) return error;
  const message = `${error.message} Some servers need the option --api to have /sdapi.`;
  return new ProviderError(error.code, message, { ...error, cause: undefined });
}

/** Basic authentication (RFC 7617), if the entry names a user or a password. */
function authorization(
  { userEnv, passwordEnv }: EntryOf<"sdapi">,
  deps: AdapterDeps,
): Record<string, string> {
  if (userEnv === null && passwordEnv === null) return {};
  const [user, password] = [userEnv, passwordEnv].map((name) =>
    name === null ? "" : (deps.secret(name) ?? ""),
  );
  return { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

/** The fields of `extra` win, except over those that make the image the one that was asked for. */
function bodyOf(
  { extra, models }: EntryOf<"sdapi">,
  request: ImageRequest,
  prompt: string,
  mask: Buffer | undefined,
): object {
  const [reference] = request.references;
  const { negativePrompt } = request.options;
  const { override_settings: settings } = extra;
  // The models of a list are names of ours: only a mapping names a checkpoint of the server.
  const checkpoint = Array.isArray(models) ? {} : { sd_model_checkpoint: request.model };
  return {
    batch_size: 1,
    n_iter: 1,
    // Otherwise the server loads its earlier checkpoint again after each image.
    ...(Array.isArray(models) ? {} : { override_settings_restore_afterwards: false }),
    ...extra,
    prompt,
    ...(negativePrompt !== null && { negative_prompt: negativePrompt }),
    width: multipleOf8(request.pixels.widthPx),
    height: multipleOf8(request.pixels.heightPx),
    seed: request.seed,
    ...(reference && { init_images: [new ReferenceText(reference)] }),
    ...(mask && { mask: mask.toString("base64"), inpainting_mask_invert: 0 }),
    override_settings: { ...(isObject(settings) ? settings : {}), ...checkpoint },
  };
}

/** These servers paint where a mask is white. Throws `INVALID_ARGUMENT` for a mask without transparency. */
async function paintedMask(mask: ReferenceImage): Promise<Buffer> {
  const { sharp } = await import("../../imaging/sharp-config.ts");
  return mask.lend(async (bytes) => {
    const image = sharp(bytes);
    if (!(await image.metadata()).hasAlpha) {
      const message = "The mask has no transparency: nothing is to change.";
      throw new ProviderError("INVALID_ARGUMENT", message);
    }
    return image.extractChannel("alpha").negate().png().toBuffer();
  });
}

function multipleOf8(px: number): number {
  return Math.max(8, Math.round(px / 8) * 8);
}

const MAX_MODEL = 200;

const wholeNumber = z.int().min(0).nullish().catch(null);
const answerSchema = z.object({ images: z.array(z.string()), info: z.unknown().optional() });
const infoSchema = z.object({
  seed: wholeNumber,
  /** Where the pictures begin: a grid of all of them may come first. */
  index_of_first_image: wholeNumber,
  /** One for each picture. What follows them are the maps by which they were made. */
  all_seeds: z.array(z.unknown()).nullish().catch(null),
  sd_model_name: z.string().nullish().catch(null),
  sd_model_hash: z.string().nullish().catch(null),
});

/**
 * Reads an answer of txt2img or img2img of the provider with this name. `seed` counts when the server names none. Throws
 * `ProviderError`.
 */
function readImages(
  name: string,
  { value, decode }: Pick<ImagesJson, "value" | "decode">,
  seed: number,
): GeneratedImages {
  const { data } = answerSchema.safeParse(value);
  if (data === undefined) throw ambiguous(name, 'HTTP 200 without the list "images"');
  refuseMany(name, data.images.length);
  const info = infoOf(data.info);
  const images = picturesOf(data.images, info).map(decode);
  if (images.some(({ length }) => length === 0)) throw ambiguous(name, "an image that is not Base64");
  return {
    images,
    seed: info.seed ?? seed,
    modelVersion: modelOf(info),
  };
}

/** The pictures of an answer, without a grid before them and without maps behind them; all, where `info` does not fit. */
function picturesOf(images: readonly string[], info: z.infer<typeof infoSchema>): readonly string[] {
  const first = info.index_of_first_image ?? 0;
  const count = info.all_seeds?.length || images.length;
  const pictures = images.slice(first, first + count);
  return pictures.length === 0 ? images : pictures;
}

/** `info` is JSON inside the JSON. Servers that leave it out, or write other text, have made the images even so. */
function infoOf(info: unknown): z.infer<typeof infoSchema> {
  try {
    return infoSchema.parse(JSON.parse(String(info)));
  } catch {
    return {};
  }
}

/** The checkpoint as the web UI shows it: `name [hash]`. */
function modelOf({ sd_model_name: name, sd_model_hash: hash }: z.infer<typeof infoSchema>): string | null {
  const text = [name, hash && `[${hash}]`].filter((part) => part).join(" ");
  return text === "" ? null : truncateCodePoints(upstreamWords(text), MAX_MODEL);
}
