import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { motifsByWord, pictureSeed, planScene } from "../../../src/providers/procedural/plan.ts";

const plan = (prompt: string, index = 0) => planScene(prompt, pictureSeed("model", prompt, index));

describe("planning a scene", () => {
  it("a prompt's place, time, weather and subject are what it says", () => {
    expect(plan("a red fox in a snowy forest at night")).toMatchObject({
      places: ["forest"],
      time: "night",
      weather: "snow",
      season: "winter",
      subjects: [{ motif: { name: "fox" }, count: 1, color: expect.stringMatching(/^#d8342c$/) }],
    });
    expect(plan("stormy sea with a lighthouse")).toMatchObject({
      places: ["sea"],
      weather: "storm",
      subjects: [{ motif: { name: "lighthouse" } }],
    });
    expect(plan("an astronaut riding a horse")).toMatchObject({
      isRiding: true,
      subjects: [{ motif: { name: "astronaut" } }, { motif: { name: "horse" } }],
    });
  });

  it("numbers and plurals say how many", () => {
    expect(plan("three cats and a dog").subjects).toMatchObject([
      { motif: { name: "cat" }, count: 3 },
      { motif: { name: "dog" }, count: 1 },
    ]);
    expect(plan("two yellow birds").subjects).toMatchObject([{ motif: { name: "bird" }, count: 2 }]);
    expect(plan("a glass on a bus").subjects.map(({ count }) => count)).toEqual([1, 1]);
  });

  it("a colour belongs to what follows it, and else to the whole picture", () => {
    expect(plan("purple mountains")).toMatchObject({ parts: { place: "#8a4fd0" }, accents: [] });
    expect(plan("a pink sky over a green meadow")).toMatchObject({
      parts: { sky: "#f387b4", place: "#37a24b" },
    });
    expect(plan("a cup, in teal").accents).toEqual(["#1b9a96"]);
    expect(plan("a blue house with a red car").subjects).toMatchObject([
      { color: "#2f6fdc" },
      { color: "#d8342c" },
    ]);
  });

  it("a colour that is also a thing is the thing when it stands alone", () => {
    expect(plan("an orange on a plate").subjects).toMatchObject([{ motif: { name: "orange" } }]);
    expect(plan("an orange cat").subjects).toMatchObject([{ motif: { name: "cat" }, color: "#f28322" }]);
  });

  it("what is negated is not shown", () => {
    expect(plan("a beach without palm trees and no people").subjects).toEqual([]);
  });

  it("words that name nothing known give a design chosen by the prompt", () => {
    const kinds = new Set(Array.from({ length: 60 }, (_, i) => plan(`zxqv ${i}`).pattern));
    expect(plan("zxqv flurb").places).toEqual(["pattern"]);
    expect(kinds.size).toBeGreaterThan(6);
  });

  it("every word of a motif finds it", () => {
    expect(motifsByWord().size).toBeGreaterThan(400);
    for (const [word, motif] of motifsByWord()) expect(plan(word).subjects[0]?.motif, word).toBe(motif);
  });

  it("any text gives a plan, and the same one each time", () => {
    const text = fc
      .array(fc.nat({ max: 0x10ffff }), { maxLength: 300 })
      .map((codes) => String.fromCodePoint(...codes));
    fc.assert(
      fc.property(text, fc.nat(), (prompt, seed) => {
        expect(planScene(prompt, seed)).toEqual(planScene(prompt, seed));
      }),
      { numRuns: 60 },
    );
  });
});
