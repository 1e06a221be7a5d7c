import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { type ListedModel, readModel, readPage } from "./wire/read-lists.ts";
import { unexpectedAnswer } from "./wire/unexpected-answer.ts";

/** The models that this key can make batches with; the first one is the default. */
export async function listModels(http: Http, signal?: AbortSignal): Promise<ListedModel[]> {
  const answer = await http.json({ method: "GET", path: routes.batchModels, signal });
  const page = readPage(answer.json);
  const models = page?.data.map(readModel).filter((model) => model !== null) ?? [];
  // An empty list is one; a list of other things is none.
  if (page === null || (models.length === 0 && page.data.length > 0))
    throw unexpectedAnswer("a list of models", answer);
  return models;
}
