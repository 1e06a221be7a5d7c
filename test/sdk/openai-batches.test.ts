import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readImageHeader } from "../../src/contract/image-formats.ts";
import type { OpenaiBody } from "../../src/contract/openai-api.ts";
import { tinyPng } from "../support/fake-provider.ts";
import { EDITS, GENERATIONS, jsonl, line, type ResultLine } from "../support/openai-batches.ts";
import { tempDir } from "../support/temp-dir.ts";
import { areInstalled, type Sdk, startSdk } from "./sdk.ts";
import { type SdkService, startSdkService } from "./service.ts";

for (const library of ["openai", "openai-7"] as const) {
  describe.skipIf(!areInstalled)(`files and batches of OpenAI's own library, ${library}`, () => {
    let service: SdkService;
    let sdk: Sdk;
    beforeAll(async () => {
      service = await startSdkService({}, true);
      sdk = startSdk(library, { apiKey: service.apiKey, baseURL: `${service.url}/v1` });
    });
    afterAll(async () => {
      await sdk?.close();
      await service?.close();
    });

    async function call<T>(method: string, ...args: unknown[]): Promise<T> {
      const { value, error } = await sdk.call<T>(method, ...args);
      expect(error).toBeUndefined();
      return value;
    }

    async function upload(
      name: string,
      content: string | Buffer,
      purpose = "batch",
    ): Promise<OpenaiBody<"OpenaiFile">> {
      const path = join(await tempDir(), name);
      await writeFile(path, content);
      const expires_after = { anchor: "created_at", seconds: 7200 };
      return call("files.create", { file: { stream: path }, purpose, expires_after });
    }

    async function ended({ id }: OpenaiBody<"OpenaiBatch">): Promise<OpenaiBody<"OpenaiBatch">> {
      let batch: OpenaiBody<"OpenaiBatch"> | null = null;
      const states = async () => {
        batch = await call<OpenaiBody<"OpenaiBatch">>("batches.retrieve", id);
        return batch.status;
      };
      await expect.poll(states, { timeout: 60_000 }).not.toMatch(/validating|in_progress|finalizing/);
      return batch as unknown as OpenaiBody<"OpenaiBatch">;
    }

    const create = (input_file_id: string, endpoint = GENERATIONS): Promise<OpenaiBody<"OpenaiBatch">> =>
      call("batches.create", { input_file_id, endpoint, completion_window: "24h", metadata: { a: "b" } });

    const linesOf = async (id: string | null) =>
      (await call<string>("files.content", id))
        .split("\n")
        .slice(0, -1)
        .map((each): ResultLine => JSON.parse(each));

    const shapeOf = ({ response }: ResultLine) => {
      const bytes = Buffer.from(response?.body.data?.[0]?.b64_json ?? "", "base64");
      const header = readImageHeader(bytes);
      return [header?.mimeType, header?.widthPx, header?.heightPx];
    };

    it("[SDK-13] uploads requests, makes a batch of them, waits, and downloads images and errors", async () => {
      const lines = [
        line("wide", "a red fox", { size: "1536x1024" }),
        line("refused", "[[refuse]] a fox"),
        line("wrong", "an owl", { size: "huge" }),
        line("jpeg", "an owl", { output_format: "jpeg" }),
      ];
      const file = await upload("größe.jsonl", jsonl(lines));
      expect(file).toMatchObject({ object: "file", purpose: "batch", filename: "größe.jsonl" });
      expect((file.expires_at ?? 0) - file.created_at).toBe(7200);
      const batch = await ended(await create(file.id));
      expect(batch).toMatchObject({
        status: "completed",
        metadata: { a: "b" },
        request_counts: { total: 4, completed: 2, failed: 2 },
      });
      const output = await linesOf(batch.output_file_id);
      expect(output.map((result) => [result.custom_id, ...shapeOf(result)])).toEqual([
        ["wide", "image/png", 1536, 1024],
        ["jpeg", "image/jpeg", 1024, 1024],
      ]);
      const errors = await linesOf(batch.error_file_id);
      expect(errors.map(({ custom_id: id, response }) => [id, response?.body.error?.code])).toEqual([
        ["refused", "moderation_blocked"],
        ["wrong", "REALTIME_INVALID_ARGUMENT"],
      ]);
      const result = await call<OpenaiBody<"OpenaiFile">>("files.retrieve", batch.output_file_id);
      expect(result.purpose).toBe("batch_output");
    });

    it("[SDK-13] edits an image that was uploaded once", async () => {
      const image = await upload("fox.png", await tinyPng(), "vision");
      const lines = ["in autumn", "in spring"].map((prompt) =>
        line(prompt, prompt, { images: [{ file_id: image.id }] }, EDITS),
      );
      const batch = await ended(await create((await upload("edits.jsonl", jsonl(lines))).id, EDITS));
      const output = await linesOf(batch.output_file_id);
      expect(output.map((each) => each.custom_id)).toEqual(["in autumn", "in spring"]);
    });

    it("[SDK-13] lists page after page, cancels, and deletes files", async () => {
      const file = await upload("stuck.jsonl", jsonl([line("a", "[[job-stuck:1h]] a fox")]));
      const ids: string[] = [];
      for (let i = 0; i < 3; i++) ids.push((await create(file.id)).id);
      const listed = await call<OpenaiBody<"OpenaiBatch">[]>("batches.list", { limit: 2 });
      expect(listed.slice(0, 3).map(({ id }) => id)).toEqual([...ids].reverse());
      for (const id of ids) {
        expect(await call("batches.cancel", id)).toMatchObject({ id, status: "cancelled" });
      }
      for (const each of await call<OpenaiBody<"OpenaiFile">[]>("files.list", { limit: 1, order: "asc" })) {
        expect(await call("files.delete", each.id)).toMatchObject({ id: each.id, deleted: true });
      }
      expect(await call("files.list", {})).toEqual([]);
    });

    it("[SDK-13] gets typed exceptions", async () => {
      const missing = (await sdk.call("batches.retrieve", "batch_none")).error;
      expect(missing).toMatchObject({ status: 404, code: "JOB_NOT_FOUND" });
      expect(missing?.classes).toContain("NotFoundError");
      expect((await sdk.call("files.retrieve", "file-none")).error?.classes).toContain("NotFoundError");
      const wanted = { input_file_id: "file-none", endpoint: GENERATIONS, completion_window: "24h" };
      const { error } = await sdk.call("batches.create", wanted);
      expect(error?.classes).toContain("BadRequestError");
      expect(error).toMatchObject({ code: "JOB_FILE_UNUSABLE", requestID: expect.stringMatching(/^req_/) });
    });
  });
}
