import type { OverviewObject } from "../contract/console-api.ts";
import { routes } from "../contract/routes.ts";
import type { Http } from "../http/http.ts";
import { unexpectedAnswer } from "./answers.ts";

type ProviderObject = OverviewObject["providers"][number];

/** Asks a service for its providers and their troubles. Only the key of its `credentials.json` may. */
export async function listProviders(http: Http, signal?: AbortSignal): Promise<readonly ProviderObject[]> {
  const { json, requestId } = await http.json({ method: "GET", path: routes.consoleProviders, signal });
  const { data } = (json ?? {}) as { data?: unknown };
  if (!Array.isArray(data)) throw unexpectedAnswer("a list of providers", requestId);
  return data;
}

/** Lets a service ask a provider again at once. */
export async function resumeProvider(http: Http, name: string, signal?: AbortSignal): Promise<void> {
  const request = async () => ({ method: "POST", path: routes.consoleResume(name), signal }) as const;
  await http.stream(request, async (response) => response.cancel());
}
