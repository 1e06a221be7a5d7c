import { z } from "zod";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { numberToMicros } from "../kernel/money.ts";
import { MOST_USD } from "./wire/facts.ts";
import { endlessness } from "./wire/paging.ts";
import { unexpectedAnswer } from "./wire/unexpected-answer.ts";

/** A list with more pages is endless. */
const MOST_PAGES = 1000;

const texts = z.array(z.string()).nullish().catch(null);

const modelSchema = z.looseObject({
  name: z.string().min(1),
  supportedGenerationMethods: texts,
  aspectRatios: texts,
  imageSizes: texts,
  maxInputImages: z.int().nullish().catch(null),
  pricing: z
    .looseObject({
      images: z.record(z.string(), z.number().min(0).max(MOST_USD)),
      paid: z.boolean().nullish().catch(null),
      play_money: z.boolean().nullish().catch(null),
    })
    .nullish()
    .catch(null),
});

const listSchema = z.looseObject({
  models: z.array(z.unknown()).nullish(),
  nextPageToken: z.string().nullish().catch(null),
});

/** An entry of the real-time model list. A fact that the service does not state is null. */
export interface RealtimeModel {
  id: string;
  aspectRatios: readonly string[] | null;
  imageSizes: readonly string[] | null;
  maxInputImages: number | null;
  /** The price of one image in micro-dollars, by size. */
  costsMicroUsd: Readonly<Record<string, number>> | null;
  /** Whether the service reports that its images cost real money. */
  isPaid: boolean;
  /** Whether the service reports that its images are drawn, and its prices are no real money. */
  isPlay: boolean;
  raw: Record<string, unknown>;
}

/**
 * Lists the models that this key can make real-time images with, in the service's order. Models that cannot make images
 * are left out. Throws `BAD_RESPONSE` for a list without an end.
 */
export async function listRealtimeModels(http: Http, signal?: AbortSignal): Promise<RealtimeModel[]> {
  const models = new Map<string, RealtimeModel>();
  const isEndless = endlessness();
  let cursor = "";
  for (let pages = 1; ; pages++) {
    const query = cursor === "" ? "" : `?pageToken=${encodeURIComponent(cursor.toWellFormed())}`;
    const answer = await http.json({ method: "GET", path: routes.nativeModels + query, signal });
    const page = listSchema.safeParse(answer.json);
    const next = page.data?.nextPageToken || null;
    if (!page.success || (next !== null && (pages > MOST_PAGES || isEndless(next, answer.bytes))))
      throw unexpectedAnswer("a list of models", answer.requestId);
    for (const model of (page.data.models ?? []).flatMap(readModel)) models.set(model.id, model);
    if (next === null) return [...models.values()];
    cursor = next;
  }
}

function readModel(value: unknown): RealtimeModel[] {
  const parsed = modelSchema.safeParse(value);
  if (!parsed.success) return [];
  const wire = parsed.data;
  if (wire.supportedGenerationMethods?.includes("generateContent") === false) return [];
  const prices = Object.entries(wire.pricing?.images ?? {});
  return [
    {
      id: wire.name.replace(/^models\//, ""),
      aspectRatios: wire.aspectRatios ?? null,
      imageSizes: wire.imageSizes ?? null,
      maxInputImages: wire.maxInputImages ?? null,
      costsMicroUsd: wire.pricing
        ? Object.fromEntries(prices.map(([size, usd]) => [size, numberToMicros(usd)]))
        : null,
      isPaid: wire.pricing?.paid === true,
      isPlay: wire.pricing?.play_money === true,
      raw: value as Record<string, unknown>,
    },
  ];
}
