import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { readPage } from "./wire/paging.ts";
import { type ListedModel, readModel } from "./wire/read-items.ts";
import { unexpectedAnswer } from "./wire/unexpected-answer.ts";

/** Lists the models that this key can make batches with. The first one is the default. */
export async function listModels(http: Http, signal?: AbortSignal): Promise<ListedModel[]> {
  const answer = await http.json({ method: "GET", path: routes.batchModels, signal });
  const page = readPage(answer.json);
  const models = page?.data.map(readModel).filter((model) => model !== null) ?? [];
  // An empty list is valid. A list without a single model is not.
  if (page === null || (models.length === 0 && page.data.length > 0))
    throw unexpectedAnswer("a list of models", answer.requestId);
  return models;
}
