import { expect, it } from "vitest";
import type { GeneratedImages, ImageRequest } from "../../../src/domain/ports/image-provider.ts";
import { RequestRate } from "../../../src/providers/upstream/provider.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { FakeUpstream, made, tinyPng, troubled } from "../../support/fake-provider.ts";
import { type Gate, gate } from "../../support/gate.ts";
import { openConnection } from "../../support/raw-http.ts";
import { answerOf, content, generate, imagesOf } from "../../support/realtime.ts";
import { items, MODEL, openBeside, startTestService } from "../../support/service.ts";

const MINUTE_MS = 60_000;
const config = { models: [{ id: MODEL, prices: { "1K": 0 } }] };

/** An upstream that takes one request a minute. The others wait to be sent; `isDeaf`: whatever the signal says. */
class SlowGate extends FakeUpstream {
  readonly #rate: RequestRate;
  readonly #isDeaf: boolean;
  waiting = 0;

  constructor(name: string, clock: FakeClock, isDeaf = false) {
    super(name, { concurrency: 3 });
    this.#rate = new RequestRate(1, clock);
    this.#isDeaf = isDeaf;
  }

  override async generate(request: ImageRequest, signal: AbortSignal, onSent?: () => void) {
    this.waiting++;
    await this.#rate.wait(this.#isDeaf ? new AbortController().signal : signal);
    return super.generate(request, signal, onSent);
  }
}

it.each([false, true])("a stop sends nothing more, and waits for what was sent (%s)", async (isDeaf) => {
  const clock = new FakeClock();
  const upstream = new SlowGate("vendor", clock, isDeaf);
  const answer = gate<GeneratedImages>();
  upstream.answer = () => answer.promise;
  const logLines: string[] = [];
  const service = await startTestService({ providers: [upstream], config, clock, logLines });
  const { id } = await service.submit({ model: MODEL, items: items(3) });
  await expect.poll(() => [upstream.waiting, upstream.running]).toEqual([3, 1]);
  expect(service.queue()).toMatchObject({ running: 3, paid: 1 });
  let isClosed = false;
  const closing = service.close(0).then(() => {
    isClosed = true;
  });
  const waits = () => {
    clock.advance(1);
    return logLines.find((line) => line.includes("waiting for requests that are paid"));
  };
  await expect.poll(waits).toContain('"paid":1');
  for (let minute = 0; minute < 3; minute++) clock.advance(MINUTE_MS);
  await expect.poll(() => service.queue().running).toBe(1);
  expect([isClosed, upstream.requests.length]).toEqual([false, 1]);
  answer.open(made(await tinyPng()));
  await closing;
  expect(upstream.requests).toHaveLength(1);

  const next = new FakeUpstream("vendor");
  const second = await startTestService({ providers: [next], config, data: service.data });
  expect(await second.until(id)).toMatchObject({ success_count: 3 });
  expect(next.requests).toHaveLength(2);
  expect(JSON.stringify(await second.items(id))).not.toContain("paid twice");
});

it("the time that an image took begins when its request leaves, not while that waits for its turn", async () => {
  const clock = new FakeClock();
  const upstream = new SlowGate("vendor", clock);
  const service = await startTestService({ providers: [upstream], config, clock });
  const { id } = await service.submit({ model: MODEL, items: items(2) });
  await expect.poll(() => [upstream.waiting, upstream.requests.length]).toEqual([2, 1]);
  clock.advance(MINUTE_MS);
  await service.until(id);
  expect((await service.items(id)).map(({ took_ms: tookMs }) => tookMs)).toEqual([0, 0]);
});

it("a stop begins nothing more and takes back what is unsent, also while it gives an open connection its time", async () => {
  const clock = new FakeClock();
  const upstream = new SlowGate("vendor", clock);
  const answer = gate<GeneratedImages>();
  upstream.answer = () => answer.promise;
  const service = await startTestService({ providers: [upstream], config, clock });
  const { id } = await service.submit({ model: MODEL, items: items(4) });
  await expect.poll(() => [upstream.waiting, upstream.running]).toEqual([3, 1]);
  const connection = await openConnection(service);
  const closing = service.close(60_000);
  await expect.poll(() => service.queue().running).toBe(1);
  answer.open(made(await tinyPng()));
  const { items: stored } = (await openBeside(service.data)).stores.read;
  await expect.poll(async () => (await stored.countByStatus(id)).success).toBe(1);
  clock.advance(MINUTE_MS);
  connection.destroy();
  await closing;
  expect([upstream.requests.length, upstream.waiting]).toEqual([1, 3]);
});

it.each([false, true])(
  "an item that waits to be sent goes on to another provider when its own pauses (%s)",
  async (isDeaf) => {
    const clock = new FakeClock();
    const first = new SlowGate("first", clock, isDeaf);
    const second = new FakeUpstream("second");
    const refusal = gate<GeneratedImages>();
    first.answer = () => refusal.promise;
    const service = await startTestService({ providers: [first, second], config, clock });
    const { id } = await service.submit({ model: MODEL, items: items(3) });
    await expect.poll(() => [first.waiting, first.running]).toEqual([3, 1]);
    refusal.fail(troubled("limited", { retryAfterMs: 60 * MINUTE_MS }));
    await expect.poll(() => second.requests.length).toBe(isDeaf ? 1 : 3);
    clock.advance(MINUTE_MS);
    clock.advance(MINUTE_MS);
    expect(await service.until(id)).toMatchObject({ success_count: 3 });
    expect([first.requests.length, second.requests.length]).toEqual([1, 3]);
  },
);

/** An upstream whose answers are read when the test says so. */
class Unread extends FakeUpstream {
  readonly reading: Gate<void>[] = [];
  bytes = 100_000;

  override async generate(
    request: ImageRequest,
    signal: AbortSignal,
    onSent?: () => void,
    onAnswered: (bytes: number) => void = () => {},
  ) {
    const images = await super.generate(request, signal, onSent);
    onAnswered(this.bytes);
    const read = gate();
    this.reading.push(read);
    await read.promise;
    return images;
  }
}

it("the next request is sent when a large answer has come, for no more unread answers than a paid provider has slots", async () => {
  const upstream = new Unread("vendor", { concurrency: 1 });
  const service = await startTestService({ providers: [upstream], config });
  const { id } = await service.submit({ model: MODEL, items: items(4) });
  // Two wait to be read: then no more is sent.
  await expect.poll(() => upstream.reading.length).toBe(2);
  expect(upstream.requests).toHaveLength(2);
  upstream.reading[0]?.open();
  await expect.poll(() => upstream.reading.length).toBe(3);
  for (const read of upstream.reading) read.open();
  await expect.poll(() => upstream.reading.length).toBe(4);
  upstream.reading[3]?.open();
  expect(await service.until(id)).toMatchObject({ success_count: 4 });
  expect(upstream.requests).toHaveLength(4);
});

it("no more requests are sent while answers that wait to be stored hold more than 256 MiB", async () => {
  const upstream = new Unread("vendor", { concurrency: 1 });
  upstream.bytes = 300 * 2 ** 20;
  const service = await startTestService({ providers: [upstream], config });
  const { id } = await service.submit({ model: MODEL, items: items(3) });
  for (let nth = 1; nth <= 3; nth++) {
    await expect.poll(() => upstream.reading.length).toBe(nth);
    expect(upstream.requests).toHaveLength(nth);
    upstream.reading[nth - 1]?.open();
  }
  expect(await service.until(id)).toMatchObject({ success_count: 3 });
});

it.each([9e15, 1e300])(
  "[HEALTH-1] after a pause of %d ms was asked for, the item waits a day, and nothing is tried meanwhile",
  async (retryAfterMs) => {
    const clock = new FakeClock();
    const upstream = new FakeUpstream("vendor");
    const logLines: string[] = [];
    upstream.answer = async () => {
      if (upstream.requests.length === 1) throw troubled("limited", { retryAfterMs });
      return made(await tinyPng());
    };
    const service = await startTestService({ providers: [upstream], config, clock, logLines });
    const { id } = await service.submit({ model: MODEL, items: items(1) });
    const inADay = Math.ceil((clock.nowMs() + 24 * 60 * MINUTE_MS) / 1000);
    await expect.poll(async () => (await service.batch(id)).waiting?.until).toBe(inADay);
    expect(logLines.filter((line) => line.includes('"level":"error"'))).toEqual([]);
  },
);

it("a large image of a provider is stored from the disk, and freed then, in a batch and in real time", async () => {
  const upstream = new FakeUpstream("vendor");
  const png = await tinyPng();
  let [lent, freed] = [0, 0];
  upstream.answer = async () => ({
    ...made(png),
    images: [
      {
        length: png.length,
        read: async () => png,
        lend: (work) => {
          lent++;
          return work(png);
        },
      },
    ],
    discard: async () => {
      freed++;
    },
  });
  const service = await startTestService({ providers: [upstream], config });
  const { id } = await service.submit({ model: MODEL, items: items(1) });
  expect(await service.until(id)).toMatchObject({ success_count: 1 });
  expect(Buffer.from(await (await service.ask(`/${id}/items/i1/content`)).arrayBuffer())).toEqual(png);
  // Inspected, and stored.
  await expect.poll(() => [lent, freed]).toEqual([2, 1]);
  const answer = await generate(service, content("a fox"));
  expect(imagesOf(await answerOf(answer))).toEqual([{ mimeType: "image/png", bytes: png }]);
  await expect.poll(() => freed).toBe(2);
});
