import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ITEM_ERROR_CODES } from "../../../src/contract/statuses.ts";
import { ProviderError } from "../../../src/domain/ports/image-provider.ts";
import { parseDirectives } from "../../../src/providers/procedural/provider.ts";

describe("directives", () => {
  it("directives are read anywhere in the prompt and leave no trace in its text", () => {
    const { text, directives } = parseDirectives(
      "a fox [[delay:2s]] in the [[images: 2 ]] snow [[retry-after:1.5s]]",
    );
    expect(text).toBe("a fox in the snow");
    expect(directives).toMatchObject({ delayMs: 2000, imageCount: 2, retryAfterMs: 1500 });
  });

  it("every error code can be asked for", () => {
    for (const code of ITEM_ERROR_CODES) {
      expect(parseDirectives(`x [[fail:${code}]]`).directives.fail).toBe(code);
      expect(parseDirectives(`x [[fail-once:${code}]]`).directives.failOnce).toBe(code);
    }
  });

  it.each([
    ["500ms", 500],
    ["2s", 2000],
    ["0.25s", 250],
    ["3m", 180_000],
    ["1h", 3_600_000],
  ])("a time of %s is %i ms", (value, ms) => {
    expect(parseDirectives(`x [[delay:${value}]]`).directives.delayMs).toBe(ms);
  });

  it.each([
    "[[fail]]",
    "[[fail:]]",
    "[[fail:NO_SUCH_CODE]]",
    "[[fail:safety_blocked]]",
    "[[status]]",
    "[[status:200]]",
    "[[status:600]]",
    "[[status:abc]]",
    "[[delay:2]]",
    "[[delay:-2s]]",
    "[[delay:99h]]",
    "[[delay:2 weeks]]",
    "[[retry-after]]",
    "[[images:-1]]",
    "[[images:999]]",
    "[[images:1.5]]",
    "[[empty:1]]",
    "[[refuse:yes]]",
    "[[bad-bytes:png]]",
    "[[explode]]",
    "[[__proto__:1]]",
    "[[]]",
    "[[delay:2s",
  ])("%s is refused as a malformed directive that the message names", (directive) => {
    const parse = () => parseDirectives(`a fox ${directive}`);
    expect(parse).toThrow(ProviderError);
    try {
      parse();
    } catch (error) {
      expect(error).toMatchObject({ code: "INVALID_ARGUMENT", retryable: false });
      expect((error as Error).message).toContain(directive);
    }
  });

  it("any text either parses or is refused as an invalid argument", () => {
    const piece = fc.oneof(fc.string(), fc.constantFrom("[[", "]]", "fail", ":", "[", "]", "images", "2"));
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        try {
          expect(parseDirectives(pieces.join("")).text).not.toContain("[[");
        } catch (error) {
          expect(error).toMatchObject({ name: "ProviderError", code: "INVALID_ARGUMENT" });
        }
      }),
    );
  });
});
