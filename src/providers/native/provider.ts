import type { EntryOf } from "../../contract/provider-entries.ts";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import { joinTurns } from "../../kernel/text.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";
import {
  generateContentBody,
  modelPath,
  NATIVE_TAKES,
  readContent,
  takesSeed,
} from "../upstream/generate-content.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { jsonBody } from "../upstream/request-body.ts";

/** Talks to the vendor's own `generateContent`, or to another imgbatch. */
export function createNativeAdapter(entry: EntryOf<"native">, deps: AdapterDeps): UpstreamAdapter {
  const { name, apiVersion, keyHeader, apiKeyEnv } = entry;
  const http = new UpstreamHttp(entry, deps);
  const key = apiKeyEnv === null ? null : deps.secret(apiKeyEnv);
  const headers = key === null ? {} : { [keyHeader]: key };
  return {
    address: `${http.baseUrl}/${apiVersion}`,
    takes: NATIVE_TAKES,
    async generate(request, signal, onSent, onAnswered) {
      if (request.storedReferences.length > 0) {
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes no references by storage address.`);
      }
      const path = `/${apiVersion}/${modelPath(request.model)}:generateContent`;
      const body = jsonBody(generateContentBody(request));
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const call = { method: "POST", path, headers, body, asked } as const;
      return http.images(call, signal, { onSent, onAnswered }, ({ value, decode }) => ({
        ...readContent(name, value, decode),
        seed: takesSeed(request.model) ? request.seed : null,
      }));
    },
    async probe(signal) {
      await http.json({ method: "GET", path: `/${apiVersion}/models?pageSize=1`, headers }, signal);
    },
    close: () => http.close(),
  };
}
