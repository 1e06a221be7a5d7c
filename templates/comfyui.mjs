#!/usr/bin/env node
// Makes an image with ComfyUI. For imgbatch.config.json, with full paths unless imgbatch runs in this directory:
//
//   "providers": [{
//     "name": "comfyui", "type": "command", "free": true,
//     "argv": ["node", "comfyui.mjs", "comfyui-workflow.json", "http://127.0.0.1:8188"]
//   }]
//
// The workflow is what ComfyUI saves as "Export (API)". Put placeholders where the values belong:
//   "{prompt}" "{seed}" "{width}" "{height}" "{model}", and "{reference}" in a LoadImage node.
// The example next to this file needs the checkpoint that it names; ComfyUI lists yours in its Load Checkpoint node.
//
// imgbatch writes one JSON object to standard input and reads the last line of standard output. You may change anything
// in between, or take this file as a start for another image service.

import { readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { text } from "node:stream/consumers";

const [workflowFile, address = "http://127.0.0.1:8188"] = process.argv.slice(2);
const POLL_MS = 250;
let promptId = null;

/** An error for imgbatch: `unavailable` is tried again later, `invalid` is not, `failed` is tried a few times. */
class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// imgbatch sends this signal at the deadline, or when nobody wants the image any more. SIGKILL follows after 2 s.
process.once("SIGTERM", async () => {
  if (promptId !== null) await stopWork().catch(() => {});
  process.exit(75);
});

try {
  report({ images: await makeImages(JSON.parse(await text(process.stdin))) });
} catch (error) {
  report({ error: { code: error.code ?? "failed", message: error.message } });
}

async function makeImages(job) {
  const workflow = await fillWorkflow(job);
  const accepted = await ask("/prompt", { prompt: workflow, client_id: job.id });
  promptId = accepted.prompt_id;
  const { outputs, status } = await finished();
  if (status?.status_str === "error") throw new Failure("failed", `ComfyUI failed: ${reasonOf(status)}`);
  const all = Object.values(outputs).flatMap((output) => output.images ?? []);
  // Previews are of the type "temp".
  const kept = all.filter(({ type }) => type === "output");
  const images = [];
  for (const image of kept.length > 0 ? kept : all) {
    const path = `${images.length + 1}-${basename(image.filename)}`;
    const response = await call(`/view?${new URLSearchParams(image)}`);
    await writeFile(join(job.output_dir, path), Buffer.from(await response.arrayBuffer()));
    images.push({ path });
  }
  return images;
}

async function fillWorkflow(job) {
  const workflow = await readFile(workflowFile, "utf8").catch((error) => {
    throw new Failure("failed", `The workflow cannot be read: ${error.message}`);
  });
  const values = {
    prompt: job.prompt,
    seed: job.seed,
    width: job.width,
    height: job.height,
    model: job.model,
  };
  const [reference] = job.references;
  const takesReference = workflow.includes("{reference}");
  if (takesReference && !reference) throw new Failure("invalid", "This workflow needs a reference image.");
  if (reference && !takesReference) throw new Failure("invalid", "This workflow takes no reference image.");
  if (reference) values.reference = await upload(reference, job.id);
  return fill(JSON.parse(workflow), values);
}

/** Replaces the placeholders. One that is the whole text becomes the value itself, so that a number stays a number. */
function fill(node, values) {
  if (Array.isArray(node)) return node.map((each) => fill(each, values));
  if (node !== null && typeof node === "object")
    return Object.fromEntries(Object.entries(node).map(([name, each]) => [name, fill(each, values)]));
  if (typeof node !== "string") return node;
  const whole = node.slice(1, -1);
  if (node === `{${whole}}` && Object.hasOwn(values, whole)) return values[whole];
  return node.replace(/\{(\w+)\}/g, (found, name) => (Object.hasOwn(values, name) ? values[name] : found));
}

/** Returns the name under which a LoadImage node finds the image. */
async function upload({ path, mime_type }, id) {
  const form = new FormData();
  form.set("image", new Blob([await readFile(path)], { type: mime_type }), `${id}-${basename(path)}`);
  const response = await call("/upload/image", { method: "POST", body: form });
  const { name, subfolder } = await response.json();
  return subfolder ? `${subfolder}/${name}` : name;
}

/** Waits for the end of the prompt. The queue is asked first: a prompt moves from there to the history at once. */
async function finished() {
  for (;;) {
    const { queue_running, queue_pending } = await ask("/queue");
    const history = await ask(`/history/${promptId}`);
    if (history[promptId]) return history[promptId];
    const isKnown = [...queue_running, ...queue_pending].some((entry) => entry[1] === promptId);
    if (!isKnown)
      throw new Failure("unavailable", "ComfyUI does not know the prompt any more. Was it restarted?");
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Takes the prompt out of the queue, and stops it if it runs. */
async function stopWork() {
  await call("/queue", { method: "POST", body: JSON.stringify({ delete: [promptId] }) });
  const { queue_running } = await ask("/queue");
  if (queue_running.some((entry) => entry[1] === promptId))
    await call("/interrupt", { method: "POST", body: JSON.stringify({ prompt_id: promptId }) });
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  return (await call(path, options)).json();
}

async function call(path, options) {
  const response = await fetch(address.replace(/\/+$/, "") + path, options).catch((error) => {
    throw new Failure(
      "unavailable",
      `ComfyUI at ${address} cannot be reached: ${error.cause?.code ?? error.message}`,
    );
  });
  if (response.ok) return response;
  // A 400 is a mistake in the workflow, such as a checkpoint that is missing: no other prompt would do better.
  throw new Failure(
    "failed",
    `ComfyUI returned ${response.status}: ${(await response.text()).slice(0, 1000)}`,
  );
}

function reasonOf({ messages = [] }) {
  const [, facts] = messages.find(([name]) => name === "execution_error") ?? [];
  return facts ? `${facts.node_type}: ${facts.exception_message}` : "no reason given";
}

function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
