import { describe, expect, it } from "vitest";
import { parseConfig } from "../../../src/config/load.ts";
import { modelNamed, wholeNames } from "../../../src/server/openai/model-names.ts";

const { models } = parseConfig(
  { models: [{ id: "first" }, { id: "second" }, { id: "gpt-image-2" }] },
  "test",
);
const idOf = (name: string | null, names: Record<string, string> = {}) =>
  modelNamed(name, models, names)?.id ?? null;

describe("the model of a request to OpenAI's API", () => {
  it("is the first one without a name, and for the names that clients have built in", () => {
    for (const name of [null, "dall-e-2", "dall-e-3", "gpt-image-1", "chatgpt-image-latest"]) {
      expect([name, idOf(name)]).toEqual([name, "first"]);
    }
    expect([idOf("gpt-4o"), idOf("dall-e"), idOf("")]).toEqual([null, null, null]);
    expect(modelNamed(null, [], {})).toBeNull();
  });

  it("is the one of this id before any other meaning of the name", () => {
    expect(idOf("gpt-image-2", { "gpt-image-*": "second", "gpt-image-2": "second" })).toBe("gpt-image-2");
  });

  it("is the one that the configuration names, the longest name first", () => {
    const names = {
      "gpt-image-*": "second",
      "gpt-image-1*": "first",
      "gpt-image-1-mini": "gpt-image-2",
      flux: "second",
    };
    expect(idOf("gpt-image-1-mini", names)).toBe("gpt-image-2");
    expect(idOf("gpt-image-1.5", names)).toBe("first");
    expect(idOf("gpt-image-3", names)).toBe("second");
    expect(idOf("flux", names)).toBe("second");
    expect(idOf("flux-2", names)).toBeNull();
    expect(idOf("dall-e-3", names)).toBe("first");
  });

  it("is none when the caller may not use the one that is meant", () => {
    expect(modelNamed("flux", models.slice(0, 1), { flux: "second" })).toBeNull();
  });

  it("is listed by the names without a star", () => {
    const listed = (names: Record<string, string>) =>
      wholeNames(models, names).map(({ name, model }) => `${name} ${model.id}`);
    expect(listed({})).toEqual(["chatgpt-image-latest first"]);
    expect(listed({ flux: "second", "dall-e-*": "second", "chatgpt-image-latest": "second" })).toEqual([
      "flux second",
      "chatgpt-image-latest second",
    ]);
  });

  it("must exist in the configuration", () => {
    const wrong = (names: object) => () => parseConfig({ openai: { models: names } }, "test");
    expect(wrong({ flux: "nope" })).toThrow("openai.models.flux: there is no model nope");
    expect(wrong({ "*x": "vendorx-3-pro-image" })).toThrow("a * at its end");
  });
});
