import { expect, it } from "vitest";
import { ask, create, ended, jsonl, line, sendFile } from "../../support/openai-batches.ts";
import { fitChecker } from "../../support/openapi.ts";
import { startTestService } from "../../support/service.ts";

it("[OPS-3] the description fits the answers and refusals of OpenAI's files and batches", async () => {
  const service = await startTestService();
  const { statuses, expectFit } = fitChecker();
  const lines = jsonl([line("a", "x"), line("b", "")]);
  const { id } = await expectFit<{ id: string }>("post", "/v1/files", await sendFile(service, lines));
  await expectFit("post", "/v1/files", await sendFile(service, "x", []));
  await expectFit("get", "/v1/files", await ask(service, "files?limit=5&order=asc&purpose=batch"));
  await expectFit("get", "/v1/files", await ask(service, "files?order=up"));
  await expectFit("get", "/v1/files", await ask(service, "files", { key: "wrong" }));
  await expectFit("get", "/v1/files/{file}", await ask(service, `files/${id}`));
  await expectFit("get", "/v1/files/{file}", await ask(service, "files/none"));
  await expectFit("get", "/v1/files/{file}/content", await ask(service, "files/none/content"));
  const answer = await create(service, { input_file_id: id });
  const created = await expectFit<{ id: string }>("post", "/v1/batches", answer);
  await expectFit("post", "/v1/batches", await create(service, { input_file_id: "none" }));
  const batch = await ended(service, created);
  await expectFit("get", "/v1/batches/{id}", await ask(service, `batches/${batch.id}`));
  await expectFit("get", "/v1/batches/{id}", await ask(service, "batches/none"));
  await expectFit("get", "/v1/batches", await ask(service, "batches?limit=1"));
  await expectFit("get", "/v1/batches", await ask(service, "batches?after=none"));
  const cancel = (which: string) => ask(service, `batches/${which}/cancel`, { method: "POST" });
  await expectFit("post", "/v1/batches/{id}/cancel", await cancel(batch.id));
  await expectFit("post", "/v1/batches/{id}/cancel", await cancel("none"));
  const content = await ask(service, `files/${batch.output_file_id}/content`, {
    headers: { range: "bytes=0-9" },
  });
  await expectFit("get", "/v1/files/{file}/content", content);
  await expectFit("get", "/v1/files/{file}", await ask(service, `files/${batch.error_file_id}`));
  await expectFit("delete", "/v1/files/{file}", await ask(service, `files/${id}`, { method: "DELETE" }));
  await expectFit("delete", "/v1/files/{file}", await ask(service, `files/${id}`, { method: "DELETE" }));
  expect(statuses).toEqual([
    ...[200, 400, 200, 400, 401, 200, 404, 404, 200, 400, 200, 404, 200, 400, 200, 404, 206, 200, 200, 404],
  ]);
});
