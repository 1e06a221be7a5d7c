import { cp, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { tinyPng } from "../support/fake-provider.ts";
import { cleanEnvironment, imgbatch } from "../support/processes.ts";
import { tempDir } from "../support/temp-dir.ts";
import { SMALL } from "../support/upstreams/images.ts";
import { NATIVE_KEY, startNative } from "../support/upstreams/native.ts";
import { areInstalled, NODE_22 } from "./sdk.ts";

/** Tests of a team, with the libraries as they are: they know nothing but the variables of `exec`. */
const PROGRAM = `
  import { createReadStream, readFileSync } from "node:fs";
  import OpenAI, { toFile } from "openai-7";
  import { GoogleGenAI } from "genai-3";
  import { openai as vercel } from "@ai-sdk/openai";
  import { generateImage } from "ai";
  const [, picture] = process.argv;
  const pause = () => new Promise((done) => setTimeout(done, 100));
  const openai = new OpenAI();
  const gemini = new GoogleGenAI({});
  const model = "gemini-3-pro-image";
  const told = {};
  const datas = (response) => response.candidates[0].content.parts.flatMap(({ inlineData }) => inlineData?.data ?? []);

  const made = await openai.images.generate({ model, prompt: "a red fox", n: 2, size: "1264x848" });
  told.images = made.data.map(({ b64_json }) => b64_json);
  const edited = await openai.images.edit({ model, prompt: "in autumn", image: createReadStream(picture) });
  told.edit = edited.data[0].b64_json;
  const line = { custom_id: "a", method: "POST", url: "/v1/images/generations", body: { model, prompt: "an owl" } };
  const file = await openai.files.create({ purpose: "batch", file: await toFile(Buffer.from(JSON.stringify(line) + "\\n"), "lines.jsonl") });
  let batch = await openai.batches.create({ input_file_id: file.id, endpoint: "/v1/images/generations", completion_window: "24h" });
  while (!batch.output_file_id) { await pause(); batch = await openai.batches.retrieve(batch.id); }
  const [output] = (await (await openai.files.content(batch.output_file_id)).text()).split("\\n");
  told.batch = JSON.parse(output).response.body.data[0].b64_json;

  const inlineData = { mimeType: "image/png", data: readFileSync(picture, "base64") };
  const contents = [{ role: "user", parts: [{ text: "in winter" }, { inlineData }] }];
  told.native = datas(await gemini.models.generateContent({ model, contents }));
  const request = { contents: [{ role: "user", parts: [{ text: "an owl" }] }] };
  let job = await gemini.batches.create({ model, src: [request] });
  while (!/SUCCEEDED|FAILED/.test(job.state)) { await pause(); job = await gemini.batches.get({ name: job.name }); }
  told.job = datas(job.dest.inlinedResponses[0].response);

  const { image } = await generateImage({ model: vercel.image(model), prompt: "by Vercel", size: "1024x1024" });
  told.vercel = image.base64;
  console.log(JSON.stringify(told));`;

async function run(directory: string, args: readonly string[], env: Record<string, string> = {}) {
  const config = ["--config", join(directory, "team.json"), "--replay", join(directory, "pics")];
  const command = ["--", NODE_22, "--input-type=module", "-e", PROGRAM, join(directory, "a.png")];
  const clean = cleanEnvironment({ HOME: directory, TMPDIR: directory, ...env });
  return imgbatch(["exec", ...config, ...args, ...command], { cwd: import.meta.dirname, env: clean });
}

describe.skipIf(!areInstalled)("record and replay with the vendors' own libraries", () => {
  it("[REPLAY-1] a program gets the same pictures from a recorded directory, elsewhere and without an upstream", async () => {
    const upstream = await startNative();
    upstream.size = SMALL;
    onTestFinished(() => upstream.close());
    const [here, elsewhere] = [await tempDir(), await tempDir()];
    await writeFile(join(here, "a.png"), await tinyPng());
    const config = (baseUrl: string) =>
      JSON.stringify({
        providers: [{ preset: "google", baseUrl, keyHeader: "x-goog-api-key" }],
        vendor: { preset: "google" },
      });
    await writeFile(join(here, "team.json"), config(upstream.url));
    const key = { GEMINI_API_KEY: NATIVE_KEY };
    const recorded = await run(here, ["--record", "--max-cost", "5"], key);
    expect(recorded.code).toBe(0);
    const told = JSON.parse(recorded.stdout);
    expect(Object.keys(told)).toEqual(["images", "edit", "batch", "native", "job", "vercel"]);
    // The owl of the batch is that of the job.
    expect([told.job]).toEqual([[told.batch]]);
    expect(upstream.billed()).toBe(6);
    expect(await readdir(join(here, "pics"))).toHaveLength(12);
    await upstream.close();

    for (const name of ["a.png", "pics"])
      await cp(join(here, name), join(elsewhere, name), { recursive: true });
    await writeFile(join(elsewhere, "team.json"), config("https://nobody.invalid"));
    const replayed = await run(elsewhere, []);
    expect([replayed.code, replayed.stderr]).toEqual([0, ""]);
    expect(JSON.parse(replayed.stdout)).toEqual(told);
  });
});
