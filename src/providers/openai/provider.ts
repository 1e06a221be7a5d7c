import type { EntryOf } from "../../contract/provider-entries.ts";
import { ProviderError } from "../../domain/ports/image-provider.ts";
import { joinTurns } from "../../kernel/text.ts";
import type { AdapterDeps, UpstreamAdapter } from "../upstream/adapter.ts";
import { UpstreamHttp } from "../upstream/http.ts";
import { credentialHeaders, imagesRequest, MAX_REFERENCES, readImages } from "../upstream/openai-images.ts";

/** Talks to OpenAI Images, and to the services that speak it. */
export function createOpenaiAdapter(entry: EntryOf<"openai">, deps: AdapterDeps): UpstreamAdapter {
  const { name, edits, apiKeyEnv } = entry;
  const http = new UpstreamHttp(entry, deps);
  const key = apiKeyEnv === null ? null : deps.secret(apiKeyEnv);
  const headers = credentialHeaders(entry.auth, key);
  const maxReferences = edits === "none" ? 0 : MAX_REFERENCES;
  return {
    address: http.baseUrl,
    takes: { maxReferences, ratios: "any", tiers: "any" },
    async generate(request, signal, onSent, onAnswered) {
      if (request.storedReferences.length > 0) {
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes no references by storage address.`);
      }
      if (request.references.length > maxReferences) {
        const most = maxReferences === 0 ? "no" : `at most ${maxReferences}`;
        throw new ProviderError("INVALID_ARGUMENT", `${name} takes ${most} reference images.`);
      }
      const { path, body } = imagesRequest(entry, request);
      const asked = joinTurns(request.earlier ?? "", request.prompt);
      const call = { method: "POST", path, headers, body, asked } as const;
      return http.images(call, signal, { onSent, onAnswered }, (answer) =>
        readImages(http, answer, headers, signal),
      );
    },
    async probe(signal) {
      await http.json({ method: "GET", path: "/models", headers }, signal);
    },
    close: () => http.close(),
  };
}
