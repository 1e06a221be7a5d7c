import type { ImageEvent, Images } from "../../contract/openai-images/answers.ts";

const facts = {
  size: "1264x848",
  quality: "auto",
  background: "auto",
  output_format: "png",
  usage: {
    input_tokens: 6,
    input_tokens_details: { text_tokens: 6, image_tokens: 0 },
    output_tokens: 1120,
    output_tokens_details: { text_tokens: 0, image_tokens: 1120 },
    total_tokens: 1126,
  },
} as const;

const b64_json = "iVBORw0KGgo=";
const images: Images = { created: 1896048000, data: [{ b64_json }], ...facts };
const event: ImageEvent = {
  type: "image_generation.completed",
  b64_json,
  created_at: 1896048000,
  ...facts,
};

/** An example of each body of OpenAI's API, by the name of its schema. */
export const OPENAI_EXAMPLES: Record<string, unknown> = {
  GenerateImages: { model: "gpt-image-1", prompt: "a red fox in the snow", size: "1536x1024" },
  EditImages: { prompt: "the same in autumn", images: [{ image_url: `data:image/png;base64,${b64_json}` }] },
  Images: images,
  ImageEvent: event,
};
