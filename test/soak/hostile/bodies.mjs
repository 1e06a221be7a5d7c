import { randomFillSync } from "node:crypto";
import sharp from "sharp";

const MODEL = "vendorx-3.1-flash-image";
const MIB = 1024 * 1024;

/** About 100 MB of JSON each, by name: what a hostile or a careless caller may post. */
export const BODIES = {
  references: () => JSON.stringify({ model: MODEL, items: pairs.map(referring) }),
  "same reference": () => JSON.stringify({ model: MODEL, items: pairs.map(() => referring(pairs[0])) }),
  "not Base64": () =>
    JSON.stringify({ model: MODEL, items: pairs.map((p) => referring(`${p.slice(0, -4)}@@==`)) }),
  "cut off": () => BODIES.references().slice(0, -1),
  "list of zeros": () => `{"model":"${MODEL}","items":[${"0,".repeat(50e6)}0]}`,
  "many objects": () =>
    `{"model":"${MODEL}","items":[${`{"prompt":"${"x".repeat(500)}"},`.repeat(195_000)}{}]}`,
  "depth bomb": () => "[".repeat(100e6),
  "closed depth bomb": () => "[".repeat(50e6) + "]".repeat(50e6),
  "depth bomb behind text": () => `{"a":"${"x".repeat(50e6)}","b":${"[".repeat(50e6)}`,
  "one prompt": () => JSON.stringify({ model: MODEL, items: [{ prompt: "é".repeat(50e6) }] }),
  "one task name": () =>
    JSON.stringify({ model: MODEL, task_name: "x".repeat(100e6), items: [{ prompt: "a" }] }),
  "one custom id": () =>
    JSON.stringify({ model: MODEL, items: [{ custom_id: "x".repeat(100e6), prompt: "a" }] }),
  "unknown field": () =>
    JSON.stringify({ model: "unknown", pad: "x".repeat(100e6), items: [{ prompt: "a" }] }),
  escapes: () => `{"model":"${MODEL}","items":[{"prompt":"${"\\u0041".repeat(16e6)}"}]}`,
  blanks: () => `${" ".repeat(100e6)}{}`,
};

let pairs = [];
/** Base64 of noisy images of 7 MiB each, all different. */
export async function prepareBodies(count = 13) {
  const noise = randomFillSync(Buffer.alloc(1560 * 1560 * 3));
  pairs = [];
  for (let i = 0; i < count; i++) {
    noise[0] = i;
    const raw = { width: 1560, height: 1560, channels: 3 };
    const png = await sharp(noise, { raw }).png({ compressionLevel: 0 }).toBuffer();
    if (png.length > 10 * MIB) throw new Error("the test image is too large");
    pairs.push(png.toString("base64"));
  }
}

const referring = (data) => ({
  prompt: "a [[delay:1h]]",
  reference_images: [{ mime_type: "image/png", data }],
});
