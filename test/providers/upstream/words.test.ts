import { describe, expect, it } from "vitest";
import { watchKey } from "../../../src/kernel/hide-keys.ts";
import { upstreamWords } from "../../../src/providers/upstream/answer-json.ts";

describe("an upstream's words", () => {
  it("hold no key, not even where they are cut", () => {
    const key = "canary-of-the-words-0123456789";
    watchKey(key);
    for (let before = 480; before <= 500; before++) {
      const words = upstreamWords(`${"x".repeat(before)}${key} and more`);
      expect(words).not.toContain("canary");
    }
    expect(upstreamWords("Incorrect key: sk-proj-abc***xyz.")).toBe("Incorrect key: [API key]");
  });

  it("name nothing that belongs to the upstream's customer", () => {
    const words = "models/pic-9 of projects/1234/locations/eu in org-AbCdEf123456 (project 998877) refuses";
    expect(upstreamWords(words)).toBe("[name] of [name] in [name] ([name]) refuses");
    expect(upstreamWords("a user-friendly text/plain thing, and/or more")).toBe(
      "a user-friendly text/plain thing, and/or more",
    );
  });

  it("are one line of at most 500 characters", () => {
    expect(upstreamWords("a\nb\u001b[2J\u202e")).toBe("a | b\\x1b[2J\\u202e");
    expect([...upstreamWords("😀".repeat(5000))]).toHaveLength(501);
    expect(upstreamWords(`${"/".repeat(1e5)}models/${"a/".repeat(1e5)}`)).toHaveLength(501);
  });
});
