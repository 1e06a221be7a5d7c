import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { serviceVariables } from "../../src/environment.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { ask, imagesOf } from "../support/openai-images.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, NODE_22 } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

const run = promisify(execFile);
const readme = readFileSync(resolve(import.meta.dirname, "../../templates/README.md"), "utf8");
const section = readme.slice(readme.indexOf("## OpenAI's"), readme.indexOf("## ComfyUI"));

let service: SdkService;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  service = await startSdkService();
  env = { PATH: process.env.PATH, ...serviceVariables({ ...service, dataDirectory: "" }, undefined) };
});
afterAll(() => service?.close());

describe("the recipes for other programs", () => {
  it.skipIf(!areInstalled)("has code for each library that makes an image as it stands", async () => {
    const code = /```js\n(.+?)```/s.exec(section)?.[1] ?? "";
    const statements = code
      .replace('"@google/genai"', '"genai-3"')
      .split("\n")
      .filter((line) => line !== "");
    const told = statements.map((line) =>
      line.replace(/^await (.+);$/, "console.log(JSON.stringify(await $1));"),
    );
    const options = { cwd: import.meta.dirname, env, maxBuffer: 2 ** 26 };
    const { stdout } = await run(NODE_22, ["--input-type=module", "-e", told.join("\n")], options);
    const [openai, genai, vercel] = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(openai).toMatchObject({
      size: "1536x1024",
      data: [{ b64_json: expect.stringMatching(/^iVBOR/) }],
    });
    expect(genai.candidates[0].content.parts[0].inlineData.mimeType).toBe("image/png");
    expect(JSON.stringify(vercel)).toMatch(/iVBOR/);
  });

  it.skipIf(!areInstalled).each(["genai-2", "genai-3"])(
    "finds one key of Google's library %s, which warns of two",
    async (library) => {
      const code = `import { GoogleGenAI } from "${library}"; new GoogleGenAI({});`;
      const inherited = { GOOGLE_API_KEY: "a-key-of-the-user", GOOGLE_GENAI_USE_VERTEXAI: "true", ...env };
      const options = { cwd: import.meta.dirname, env: inherited };
      const { stdout, stderr } = await run(NODE_22, ["--input-type=module", "-e", code], options);
      expect(stdout + stderr).toBe("");
    },
  );

  it("has a command that edits an image", async () => {
    const [, command = ""] = /`(curl [^`]+)`/.exec(section) ?? [];
    const cwd = await tempDir();
    await writeFile(join(cwd, "fox.png"), await tinyPng());
    const { stdout } = await run("sh", ["-c", command], { cwd, env, maxBuffer: 2 ** 26 });
    expect(JSON.parse(stdout)).toMatchObject({ size: "1024x1024", data: [{ b64_json: expect.any(String) }] });
  });

  it("has the address and the key of each program", async () => {
    const credentials = { base_url: service.url, api_key: service.apiKey };
    const rows = [...section.matchAll(/^\| (\S.*?) \| (.*HOST.*) \|$/gm)];
    expect(rows.map(([, program]) => program)).toEqual(["Open WebUI", "LibreChat", "n8n"]);
    for (const [, , settings = ""] of rows) {
      const addresses = [...settings.matchAll(/http:\/\/HOST:8787(\S*?)`/g)].map(([, path]) => path ?? "");
      expect(addresses.length).toBeGreaterThan(0);
      for (const path of addresses) {
        // The paths that the programs add to the address of OpenAI's API, and to that of Google's.
        const isOpenai = path.endsWith("/v1");
        const target = isOpenai
          ? `${path}/images/generations`
          : `${path}/v1beta/models/${MODEL}:generateContent`;
        const body = isOpenai ? { prompt: "x" } : { contents: [{ parts: [{ text: "x" }] }] };
        const answer = await ask({ url: service.url, credentials }, target, body);
        expect([target, answer.status]).toEqual([target, 200]);
        if (isOpenai) expect((await imagesOf(answer)).bytes).toHaveLength(1);
        else await answer.arrayBuffer();
      }
    }
  });
});
