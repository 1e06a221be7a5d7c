import { describe, expect, it, onTestFinished } from "vitest";
import { areInstalled } from "./sdk.ts";
import { MODEL, startSdkService } from "./service.ts";

describe.skipIf(!areInstalled)("a streamed chat of Google's library", () => {
  it("keeps its history when a picture takes longer than the first sign of life", async () => {
    const service = await startSdkService();
    onTestFinished(() => service.close());
    // Its name is one of this folder's own installation.
    const library = "genai-2";
    const { GoogleGenAI } = await import(library);
    const ai = new GoogleGenAI({ apiKey: service.apiKey, httpOptions: { baseUrl: service.url } });
    const chat = ai.chats.create({ model: MODEL });
    const send = async (message: string) => {
      let images = 0;
      for await (const chunk of await chat.sendMessageStream({ message }))
        for (const { inlineData } of chunk.candidates?.[0]?.content?.parts ?? []) if (inlineData) images++;
      return images;
    };
    expect(await send("a kite [[delay:11s]]")).toBe(1);
    expect(chat.getHistory(true).map(({ role }: { role: string }) => role)).toContain("model");
    // The next request has the picture of the first one, and what the library kept of the sign of life.
    expect(await send("make it blue")).toBe(1);
  }, 40_000);
});
