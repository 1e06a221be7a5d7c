import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import { png } from "../support/fake-service.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { MODEL, type SdkService, startSdkService } from "./service.ts";

interface SdkFile {
  name: string;
  uri: string;
  mimeType: string;
  sizeBytes: string;
  state: string;
}
interface Answer {
  candidates?: { content?: { parts: { inlineData?: { data: string } }[] } }[];
}

for (const library of ["genai-2", "genai-3"] as const) {
  describe.skipIf(!areInstalled)(`files of the vendor's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService();
      sdk = startSdk(library, { apiKey: service.apiKey, httpOptions: { baseUrl: service.url } });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });
    const store = async (name: string, bytes: Buffer) => {
      const file = join(await tempDir(), name);
      await writeFile(file, bytes);
      return file;
    };

    it("uploads a file in several chunks, and gets, lists, downloads and deletes it", async () => {
      // The library sends 8 MiB at a time.
      const bytes = randomBytes(8_500_000);
      const file = await store("lines.jsonl", bytes);
      const config = { mimeType: "jsonl", displayName: "lines", name: "my-lines" };
      const { value, error } = await sdk.call<SdkFile>("files.upload", { file, config });
      expect(error).toBeUndefined();
      expect(value).toMatchObject({ name: "files/my-lines", displayName: "lines", mimeType: "jsonl" });
      expect(value).toMatchObject({ sizeBytes: "8500000", state: "ACTIVE" });
      expect((await sdk.call<SdkFile>("files.get", value)).value).toMatchObject({ uri: value.uri });
      const small = await store("fox.png", png("fox", 8, 8));
      for (let i = 0; i < 2; i++) await sdk.call("files.upload", { file: small });
      const listed = await sdk.call<SdkFile[]>("files.list", { config: { pageSize: 2 } });
      expect(listed.value.map(({ mimeType }) => mimeType)).toEqual(["image/png", "image/png", "jsonl"]);
      const downloadPath = join(await tempDir(), "again");
      expect((await sdk.call("files.download", { file: value.name, downloadPath })).error).toBeUndefined();
      // The library does not wait for the end of the file that it writes.
      await expect.poll(async () => (await readFile(downloadPath)).equals(bytes)).toBe(true);
      for (const { name } of listed.value) {
        expect((await sdk.call("files.delete", { name })).error).toBeUndefined();
      }
      expect((await sdk.call("files.list", {})).value).toEqual([]);
    });

    it("edits by a file that was uploaded before", async () => {
      const file = await store("fox.png", png("fox", 64, 96));
      const { value } = await sdk.call<SdkFile>("files.upload", { file });
      const contents = [{ text: "bluer" }, { fileData: { fileUri: value.uri, mimeType: value.mimeType } }];
      const made = await sdk.call<Answer>("models.generateContent", { model: MODEL, contents });
      const data = made.value.candidates?.[0]?.content?.parts.find((part) => part.inlineData)?.inlineData
        ?.data;
      expect(readImageHeader(Buffer.from(data ?? "", "base64"))).toMatchObject({
        widthPx: 848,
        heightPx: 1264,
      });
    });

    it("gets typed errors for a file that is missing, and for a name that is taken", async () => {
      const missing = await sdk.call("files.get", { name: "files/none" });
      expect(missing.error).toMatchObject({ name: "ApiError", status: 404 });
      const file = await store("fox.png", png("fox", 8, 8));
      const upload = { file, config: { name: "fox", mimeType: "image/png" } };
      expect((await sdk.call("files.upload", upload)).error).toBeUndefined();
      const { error } = await sdk.call("files.upload", upload);
      expect(error?.message).toMatch(/ALREADY_EXISTS|already/);
    });
  });
}
