/**
 * The variables through which programs find the service: those of imgbatch, and those that the SDKs of OpenAI and Google
 * Gemini read. `NO_PROXY` excludes the service from a proxy. Undefined is for those that would lead Google's SDK elsewhere:
 * with two keys it warns, and with Vertex AI it takes another address.
 */
export function serviceVariables(
  service: { url: string; apiKey: string; dataDirectory: string },
  proxyExceptions: string | undefined,
): Record<string, string | undefined> {
  const { url, apiKey, dataDirectory } = service;
  const { hostname } = new URL(url);
  const except = [...(proxyExceptions ?? "").split(","), hostname].filter((host) => host !== "").join(",");
  return {
    IMGBATCH_BASE_URL: url,
    IMGBATCH_API_KEY: apiKey,
    IMGBATCH_DATA: dataDirectory,
    OPENAI_BASE_URL: `${url}/v1`,
    OPENAI_API_KEY: apiKey,
    GOOGLE_GEMINI_BASE_URL: url,
    GEMINI_API_KEY: apiKey,
    GOOGLE_API_KEY: undefined,
    GOOGLE_GENAI_USE_VERTEXAI: undefined,
    GOOGLE_GENAI_USE_ENTERPRISE: undefined,
    NO_PROXY: except,
    no_proxy: except,
  };
}
