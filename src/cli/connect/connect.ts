import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { loadUnlessDefault } from "../../config/load-unless-default.ts";
import { dataDirectoryOf } from "../../config/paths.ts";
import { identityOf, type ProviderIdentity } from "../../contract/data-directory.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { type Environment, readEnvironment } from "../../environment.ts";
import { isLoopback } from "../../kernel/loopback.ts";
import type { Output } from "../command.ts";
import type { GlobalOptions } from "../options.ts";
import { readAll, type Terminal } from "../terminal.ts";
import type { ServiceConnection, ServiceNeeds } from "./connection.ts";
import { connectEmbedded } from "./embedded.ts";
import { findRunning } from "./running-service.ts";

/** The parts of the context that connecting needs. The signal stops it. */
interface Surroundings extends Pick<Terminal, "stdin" | "cwd"> {
  output: Output;
  signal: AbortSignal;
}

/**
 * Connects to the service: the base URL of the flag, the environment or the configuration file; else the embedded one.
 * Throws `API_KEY_REQUIRED` without a key for a named service, the errors of `loadConfig`, and `USAGE` if `--upstream` is
 * typed for a named service, which has its own.
 */
export async function openService(
  global: GlobalOptions,
  needs: ServiceNeeds,
  surroundings: Surroundings,
): Promise<ServiceConnection> {
  const { output, signal, cwd } = surroundings;
  const { environment, config, dataDirectory, baseUrl } = await settingsOf(global, needs, cwd);
  if (baseUrl === null) return connectEmbedded({ config, dataDirectory, needs, output, signal });

  const running = await findRunning(dataDirectory);
  const own = running?.url === baseUrl ? running : null;
  return {
    baseUrl,
    apiKey: own?.apiKey ?? (await readApiKey(global, environment, surroundings)),
    ...(own === null ? {} : { confirm: own.confirm, providers: own.providers }),
    kind: "remote",
    isLocal: isLoopback(new URL(baseUrl).hostname),
  };
}

/**
 * Returns the providers that `openService` would find, without starting or asking a named service, which has providers of its
 * own. Throws `USAGE` as `openService` does.
 */
export async function providersToExpect(
  global: GlobalOptions,
  needs: Pick<ServiceNeeds, "upstream">,
  cwd: string,
): Promise<readonly ProviderIdentity[]> {
  const { config, dataDirectory, baseUrl } = await settingsOf(global, needs, cwd);
  const running = await findRunning(dataDirectory);
  if (baseUrl !== null) return (running?.url === baseUrl ? running.providers : null) ?? [];
  return running?.providers ?? config?.providers.map(identityOf) ?? [];
}

/** Returns what decides the service of a command. `baseUrl` is null for the embedded one. */
async function settingsOf(
  global: GlobalOptions,
  needs: Pick<ServiceNeeds, "upstream" | "priced">,
  cwd: string,
) {
  const environment = readEnvironment();
  const upstream = needs.upstream ?? null;
  const dataDirectory = dataDirectoryOf(global.data, environment, cwd);
  const chosen = global.baseUrl ?? environment.baseUrl;
  const config = await loadUnlessDefault({
    file: global.config,
    cwd,
    upstream: upstream?.name ?? null,
    priced: needs.priced ?? null,
    replaced: chosen === undefined ? [] : "all",
  });
  const named = chosen ?? config?.baseUrl ?? null;
  const baseUrl = named === null ? null : checkedUrl(named);
  if (baseUrl !== null && upstream?.isTyped) throw upstreamElsewhere(baseUrl);
  return { environment, config, dataDirectory, baseUrl };
}

/** The error of `--upstream` together with the address of a service. */
export function upstreamElsewhere(baseUrl: string): ImgbatchError {
  const message = `--upstream is for the service inside imgbatch, and this command talks to ${baseUrl}: leave out --upstream, or the base URL (--base-url, IMGBATCH_BASE_URL, or baseUrl in the configuration).`;
  return new ImgbatchError("USAGE", message, { param: "--upstream" });
}

/**
 * Returns a base URL without a slash at its end. Throws `USAGE` for any other text, and shows it only if it has no part
 * that can hold a password or a key.
 */
export function checkedUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isHttp = url?.protocol === "http:" || url?.protocol === "https:";
  if (!url || !isHttp || `${url.username}${url.password}${url.search}${url.hash}` !== "") {
    const shown = /[@?#]/.test(text) ? "the given address" : JSON.stringify(text);
    const extra = url && isHttp ? ", without user, password, query or fragment" : "";
    throw new ImgbatchError(
      "USAGE",
      `base URL: ${shown} is not like https://host or https://host/path${extra}`,
    );
  }
  return url.href.replace(/\/+$/, "");
}

type Input = Pick<Surroundings, "stdin" | "signal" | "cwd">;

async function readApiKey(global: GlobalOptions, environment: Environment, input: Input): Promise<string> {
  const key = await givenApiKey(global, environment, input);
  if (key === undefined) {
    const message = "No API key: set IMGBATCH_API_KEY, or use --api-key-file or --api-key-stdin.";
    throw new ImgbatchError("API_KEY_REQUIRED", message);
  }
  if (key === "") throw new ImgbatchError("API_KEY_REQUIRED", `No API key: ${sourceOf(global)} is empty.`);
  // fetch throws an error that shows the key if the key cannot be a header value.
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new ImgbatchError("INVALID_API_KEY", "The API key contains characters that no key has.");
  }
  return key;
}

async function givenApiKey(
  global: GlobalOptions,
  environment: Environment,
  input: Input,
): Promise<string | undefined> {
  if (global.apiKeyFile !== undefined) {
    try {
      return (await readFile(resolve(input.cwd, global.apiKeyFile), "utf8")).trim();
    } catch (error) {
      throw new ImgbatchError("USAGE", `--api-key-file: ${global.apiKeyFile} cannot be read`, {
        cause: error,
      });
    }
  }
  if (global.apiKeyStdin) return readPipedKey(input);
  return environment.apiKey;
}

/** Never reads from a terminal, which would show the key on the screen. */
async function readPipedKey({ stdin, signal }: Input): Promise<string> {
  if (stdin.isTTY === true) {
    const message =
      "--api-key-stdin: standard input is a terminal. Pipe the key into the command, or use --api-key-file.";
    throw new ImgbatchError("USAGE", message, { param: "--api-key-stdin" });
  }
  return new TextDecoder().decode(await readAll(stdin, signal)).trim();
}

function sourceOf({ apiKeyFile }: GlobalOptions): string {
  return apiKeyFile === undefined ? "standard input (--api-key-stdin)" : `${apiKeyFile} (--api-key-file)`;
}
