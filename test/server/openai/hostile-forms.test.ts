import { expect, it } from "vitest";
import { seededRandom } from "../../soak/random.ts";
import { draftsBelow } from "../../support/drafts.ts";
import { tinyPng } from "../../support/fake-provider.ts";
import { fuzzRuns } from "../../support/fuzz-runs.ts";
import { startTestService } from "../../support/service.ts";

const BOUNDARY = "openai-0123456789";

async function wholeForm(): Promise<Buffer> {
  const head = (name: string, file = "") =>
    Buffer.from(`--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${file}\r\n\r\n`);
  const file = '; filename="a.png"\r\ncontent-type: image/png';
  const end = Buffer.from("\r\n");
  return Buffer.concat([
    ...[head("prompt"), Buffer.from("a fox"), end],
    ...[head("image[]", file), await tinyPng(), end],
    ...[head("n"), Buffer.from("2"), end],
    ...[head("image[]", file), await tinyPng(1), end],
    Buffer.from(`--${BOUNDARY}--\r\n`),
  ]);
}

it("a form that is damaged anywhere gets an answer, never a fault, and leaves nothing on the disk", async () => {
  const service = await startTestService({ workers: false });
  const random = seededRandom(7);
  const below = (max: number) => Math.floor(random() * max);
  const whole = await wholeForm();
  const damages = [
    (bytes: Buffer) => bytes.subarray(0, below(bytes.length)),
    (bytes: Buffer) => Buffer.concat([bytes.subarray(below(40)), bytes.subarray(0, below(40))]),
    (bytes: Buffer) => {
      const copy = Buffer.from(bytes);
      for (let i = 0; i < 3; i++) copy[below(copy.length)] = below(256);
      return copy;
    },
    (bytes: Buffer) => {
      const at = below(bytes.length);
      return Buffer.concat([bytes.subarray(0, at), bytes.subarray(below(at + 1), at), bytes.subarray(at)]);
    },
  ];
  const seen = new Set<number>();
  for (let i = 0; i < fuzzRuns(200); i++) {
    const body = damages[i % damages.length]?.(whole) ?? whole;
    const answer = await fetch(`${service.url}/v1/images/edits`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${service.credentials.api_key}`,
        "content-type": `multipart/form-data; boundary=${BOUNDARY}`,
      },
      body: Uint8Array.from(body),
    });
    const text = await answer.text();
    seen.add(answer.status);
    expect([i, answer.status, answer.status < 500], text).toEqual([i, answer.status, true]);
  }
  expect([...seen].sort()).toEqual([200, 400]);
  await expect.poll(() => draftsBelow(service.data)).toEqual([]);
});
