import { expect, it } from "vitest";
import { whyNoImage } from "../../src/contract/statuses.ts";

const candidate = (fields: object) => ({ candidates: [fields] });

it.each<[string, object, ReturnType<typeof whyNoImage>]>([
  [
    "the words of a model that wrote instead of painting, two lines of them",
    candidate({
      finishReason: "STOP",
      content: { parts: [{ text: "I think.", thought: true }, { text: "No map.\n\n Ask again.\nBye." }] },
    }),
    { refused: null, reason: "STOP", words: "No map. | Ask again." },
  ],
  [
    "a refusal of the image, which is none of the prompt",
    candidate({ finishReason: "IMAGE_SAFETY", finishMessage: "Not this one." }),
    { refused: "image", reason: "IMAGE_SAFETY", words: "Not this one." },
  ],
  [
    "a refusal of the prompt",
    { promptFeedback: { blockReason: "OTHER", blockReasonMessage: null }, candidates: null },
    { refused: "prompt", reason: "OTHER", words: "" },
  ],
  ["an answer without anything", {}, { refused: null, reason: "the answer has no candidates", words: "" }],
])("says why there is no image: %s", (_what, answer, why) => {
  expect(whyNoImage(answer)).toEqual(why);
});
