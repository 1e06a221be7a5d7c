import { IMAGE_HEADS } from "../../contract/image-formats.ts";
import type { ImageRequest, ItemProvider } from "../../domain/ports/image-provider.ts";
import { Decoding } from "../../imaging/decoding.ts";
import type { Clock } from "../../kernel/clock.ts";
import { fieldsOf } from "../../kernel/json.ts";
import { joinTurns } from "../../kernel/text.ts";
import { failureOf, parseDirectives, type Simulation, withoutDirectives } from "./directives.ts";

/** The version of the drawings. It changes whenever the same request gives other pixels. */
const DRAWING_VERSION = "3";

interface ProceduralOptions {
  /** The provider's name in the configuration. */
  name: string;
  concurrency: number;
  /** Whether the provider serves a model id. */
  models: (model: string) => boolean;
  clock: Clock;
  simulate?: Simulation;
  decoding?: Decoding;
}

/**
 * Creates a provider that draws pictures on this machine from the words of the prompt, without a model, a network or costs.
 * The same request gives the same bytes. Directives in the prompt make it wait, fail or misbehave on purpose.
 */
export function createProceduralProvider(options: ProceduralOptions): ItemProvider {
  const { clock, simulate, decoding = new Decoding() } = options;
  return {
    kind: "item",
    name: options.name,
    concurrency: options.concurrency,
    serves: options.models,
    async generate(request, signal) {
      signal.throwIfAborted();
      const earlier = joinTurns(instructionOf(request), request.earlier ?? "");
      const { text: newest, directives } = parseDirectives(request.prompt);
      const text = joinTurns(withoutDirectives(earlier), newest);
      const prompt = joinTurns(earlier, request.prompt);
      const modelVersion = `${request.model} (procedural/${DRAWING_VERSION})`;
      const waitMs = directives.delayMs + (simulate?.latencyMs ?? 0);
      if (waitMs > 0) await clock.sleep(waitMs, signal);
      signal.throwIfAborted();
      const failure = failureOf(directives, simulate, request, modelVersion);
      if (failure) throw failure;
      const images: Buffer[] = [];
      // Loaded with the first picture, together with the image library.
      const { drawPicture } = await import("./draw.ts");
      for (let image = 0; image < directives.imageCount; image++) {
        images.push(
          directives.badBytes
            ? badBytes(request.mimeType)
            : await drawPicture(
                { ...request, prompt, text, image, version: DRAWING_VERSION },
                signal,
                decoding,
              ),
        );
      }
      const seed = request.asked?.seed ?? null;
      return seed === null ? { images, modelVersion } : { images, modelVersion, seed };
    },
    close: async () => {},
  };
}

/** The text of the native API's `systemInstruction`, which is drawn with the prompt. */
function instructionOf({ verbatim }: ImageRequest): string {
  const instruction = verbatim?.api === "native" ? verbatim.fields.systemInstruction : undefined;
  if (typeof instruction === "string") return instruction;
  const parts = fieldsOf(instruction)?.parts;
  const list = Array.isArray(parts) ? parts : [parts];
  return list
    .flatMap((part) => fieldsOf(part)?.text ?? [])
    .join("\n")
    .trim();
}

/** Returns bytes that begin like the image type but are no image. */
function badBytes(mimeType: ImageRequest["mimeType"]): Buffer {
  const head = IMAGE_HEADS[mimeType].map((byte) => byte ?? 0);
  return Buffer.concat([Buffer.from(head), Buffer.from("these bytes are not an image, on purpose")]);
}
