import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { ReferenceImage } from "../../../src/domain/ports/image-provider.ts";
import { createCommandAdapter } from "../../../src/providers/command/provider.ts";
import { runInProcess } from "../../support/cli-in-process.ts";
import { listening } from "../../support/listening.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { closing, entryOf, PNG } from "../../support/upstream-adapter.ts";
import { imageRequest, never, providerError, reference } from "../upstream/scripted-server.ts";
import { patientClock } from "./programs.ts";

const SAVED = { filename: "imgbatch_00001_.png", subfolder: "", type: "output" };
const SUCCESS = {
  status: { status_str: "success", completed: true },
  outputs: { 7: { images: [SAVED] }, 9: { images: [{ ...SAVED, type: "temp" }] } },
};

interface Comfy {
  /** The entry in the history, once it is there. */
  ended: object | null;
  /** Whether the queue still knows the prompt before it has ended. */
  isKnown: boolean;
  refuses: boolean;
}

/** A ComfyUI that takes one prompt, and the program of the template in front of it. */
async function comfyui(changes: Partial<Comfy> = {}) {
  const comfy: Comfy = { ended: SUCCESS, isKnown: true, refuses: false, ...changes };
  const seen: { line: string; body: string }[] = [];
  const routes: Record<string, (body: string) => unknown> = {
    "POST /prompt": () => ({ prompt_id: "p-1", number: 1, node_errors: {} }),
    "GET /queue": () => ({ queue_running: comfy.isKnown ? [[1, "p-1", {}]] : [], queue_pending: [] }),
    "POST /queue": () => ({}),
    "POST /interrupt": () => ({}),
    "GET /history/p-1": () => (comfy.ended === null ? {} : { "p-1": comfy.ended }),
    "POST /upload/image": () => ({ name: "ref.png", subfolder: "in", type: "input" }),
  };
  const server = createServer(async (incoming, response) => {
    const body = Buffer.concat(await incoming.toArray()).toString("latin1");
    const line = `${incoming.method} ${incoming.url}`;
    seen.push({ line, body });
    if (line === "GET /view?filename=imgbatch_00001_.png&subfolder=&type=output") response.end(PNG);
    else if (comfy.refuses)
      response.writeHead(400).end('{"error":{"message":"value not in list: ckpt_name"}}');
    else response.end(JSON.stringify(routes[line]?.(body) ?? null));
  });
  const dir = await tempDir();
  await runInProcess(["init", dir, "--template", "comfyui"], { cwd: dir });
  const workflow = join(dir, "comfyui-workflow.json");
  const url = `${await listening(server)}/`;
  const entry = entryOf("command", { argv: [process.execPath, join(dir, "comfyui.mjs"), workflow, url] });
  const secret = (name: string) => process.env[name] ?? null;
  const adapter = closing(createCommandAdapter(entry, { clock: patientClock, secret }));
  const sent = () => JSON.parse(seen.find(({ line }) => line === "POST /prompt")?.body ?? "null")?.prompt;
  return { comfy, seen, server, adapter, workflow, sent };
}

it("the ComfyUI program fills in the workflow and returns what it saves", async () => {
  const { adapter, sent, comfy, seen } = await comfyui({ ended: null });
  const prompt = 'a "red" {seed} fox';
  const pixels = { widthPx: 1376, heightPx: 768 };
  const call = adapter.generate(imageRequest({ prompt, pixels, seed: 12 }), never, () => {});
  await expect.poll(() => seen.filter(({ line }) => line === "GET /history/p-1").length).toBeGreaterThan(1);
  comfy.ended = SUCCESS;
  expect(await call).toMatchObject({ images: [PNG], seed: 12 });
  expect(sent()["2"].inputs.text).toBe(prompt);
  expect(sent()["4"].inputs).toEqual({ width: 1376, height: 768, batch_size: 1 });
  expect(sent()["5"].inputs).toMatchObject({ seed: 12, steps: 20, model: ["1", 0] });
});

it("the ComfyUI program uploads a reference, and names a workflow that does not fit", async () => {
  const { adapter, sent, seen, workflow } = await comfyui();
  const generate = (references: ReferenceImage[]) =>
    adapter.generate(imageRequest({ references }), never, () => {});
  expect(await providerError(generate([reference(PNG)]))).toMatchObject({
    code: "INVALID_ARGUMENT",
    message: "This workflow takes no reference image.",
  });
  const text = await readFile(workflow, "utf8");
  await writeFile(workflow, text.replace('"text, watermark"', '"{reference}"'));
  expect((await providerError(generate([]))).message).toBe("This workflow needs a reference image.");
  expect((await generate([reference(PNG)])).images).toEqual([PNG]);
  expect(sent()["3"].inputs.text).toBe("in/ref.png");
  const upload = seen.find(({ line }) => line === "POST /upload/image");
  expect(upload?.body).toContain(PNG.toString("latin1"));
});

it("the ComfyUI program reports the failures of ComfyUI", async () => {
  const make = async (changes: Partial<Comfy>) => {
    const { adapter } = await comfyui(changes);
    return providerError(adapter.generate(imageRequest(), never, () => {}));
  };
  const facts = { node_type: "KSampler", exception_message: "out of memory" };
  const status = { status_str: "error", messages: [["execution_error", facts]] };
  expect(await make({ ended: { status, outputs: {} } })).toMatchObject({
    trouble: "failing",
    message: "ComfyUI failed: KSampler: out of memory",
  });
  expect((await make({ refuses: true })).message).toContain("ComfyUI returned 400: ");
  expect((await make({ ended: null, isKnown: false })).message).toContain("Was it restarted?");
  const { server, adapter } = await comfyui();
  server.closeAllConnections();
  await new Promise((done) => server.close(done));
  const failure = await providerError(adapter.generate(imageRequest(), never, () => {}));
  expect(failure).toMatchObject({ trouble: "failing", message: expect.stringContaining("ECONNREFUSED") });
});

it("the ComfyUI program stops the work when it is ended", async () => {
  const { adapter, seen } = await comfyui({ ended: null });
  const abort = new AbortController();
  const call = adapter.generate(imageRequest(), abort.signal, () => {}).catch((error) => error.message);
  await expect.poll(() => seen.some(({ line }) => line === "GET /history/p-1")).toBe(true);
  abort.abort(new Error("enough"));
  expect(await call).toBe("enough");
  expect(seen.find(({ line }) => line === "POST /queue")?.body).toBe('{"delete":["p-1"]}');
  expect(seen.find(({ line }) => line === "POST /interrupt")?.body).toBe('{"prompt_id":"p-1"}');
});
