/** The variable that marks everything a command started, so that what lingers can be found. */
export const MARK = "IMGBATCH_EXEC";

/**
 * The variables through which programs find a service: this program's own, and those that the SDKs of OpenAI and of
 * Google's generative models read. A proxy is told to leave the service's address alone.
 */
export function serviceVariables(
  service: { url: string; apiKey: string; dataDirectory: string },
  proxyExceptions: string | undefined,
): Record<string, string> {
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
    GOOGLE_API_KEY: apiKey,
    NO_PROXY: except,
    no_proxy: except,
  };
}
