// This file imports nothing: the start of the program reads it before anything else.

/** The files that GitHub Actions reads after a step; null outside of GitHub Actions. */
export function readActionsEnvironment(): { summary: string | undefined; output: string | undefined } | null {
  const { env } = process;
  if (env.GITHUB_ACTIONS !== "true") return null;
  return { summary: env.GITHUB_STEP_SUMMARY || undefined, output: env.GITHUB_OUTPUT || undefined };
}

/** The commit that a job of GitHub Actions works on; null elsewhere. */
export function readCommit(): string | null {
  const { env } = process;
  return (env.GITHUB_ACTIONS === "true" && env.GITHUB_SHA) || null;
}

/** Returns the address of a file of the repository of a job of GitHub Actions; null elsewhere. `path`: from its root on. */
export function rawLink(path: string, commit: string | null): string | null {
  const { env } = process;
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: repository } = env;
  if (env.GITHUB_ACTIONS !== "true" || !server || !repository || commit === null) return null;
  return `${server}/${repository}/raw/${commit}/${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** The root of the repository that GitHub Actions or GitLab has checked out; null elsewhere. */
export function readRepositoryRoot(): string | null {
  const { env } = process;
  if (env.GITHUB_ACTIONS === "true") return env.GITHUB_WORKSPACE || null;
  return (env.GITLAB_CI === "true" && env.CI_PROJECT_DIR) || null;
}

/** Reads the environment. No other file does. */
export interface Environment {
  baseUrl: string | undefined;
  apiKey: string | undefined;
  dataDirectory: string | undefined;
}

export function readEnvironment(): Environment {
  const { env } = process;
  return {
    baseUrl: env.IMGBATCH_BASE_URL || undefined,
    apiKey: env.IMGBATCH_API_KEY?.trim() || undefined,
    dataDirectory: env.IMGBATCH_DATA || undefined,
  };
}

/** The secrets of a shared store, under the names that its own tools know. */
export interface StorageEnvironment {
  /** The whole URL of a database, with user and password. */
  databaseUrl: string | undefined;
  databaseUser: string | undefined;
  databasePassword: string | undefined;
  databaseSslMode: string | undefined;
  databaseSslRootCert: string | undefined;
  aws: {
    accessKeyId: string | undefined;
    secretAccessKey: string | undefined;
    sessionToken: string | undefined;
  };
}

export function readStorageEnvironment(env: NodeJS.ProcessEnv = process.env): StorageEnvironment {
  return {
    databaseUrl: env.IMGBATCH_DATABASE_URL || undefined,
    databaseUser: env.PGUSER || undefined,
    databasePassword: env.PGPASSWORD || undefined,
    databaseSslMode: env.PGSSLMODE || undefined,
    databaseSslRootCert: env.PGSSLROOTCERT || undefined,
    aws: {
      accessKeyId: env.AWS_ACCESS_KEY_ID?.trim() || undefined,
      secretAccessKey: env.AWS_SECRET_ACCESS_KEY?.trim() || undefined,
      sessionToken: env.AWS_SESSION_TOKEN?.trim() || undefined,
    },
  };
}

/** Whether lines must not be redrawn even on a terminal: it cannot do so (`TERM=dumb`), or a CI system records it (`CI`). */
export function isDumbTerminal(env: NodeJS.ProcessEnv = process.env): boolean {
  return env.TERM === "dumb" || !["", "0", "false", undefined].includes(env.CI);
}

/** Whether a desktop can show windows: for systems with X11 or Wayland. */
export function hasDisplay(): boolean {
  return Boolean(process.env.DISPLAY || process.env.WAYLAND_DISPLAY);
}

/**
 * Names the configuration that Fontconfig reads with the first text, unless the user has named one. Returns a function
 * that takes the name back, so that no child gets it.
 */
export function nameFontConfiguration(file: string): () => void {
  const { env } = process;
  if (env.FONTCONFIG_FILE !== undefined) return () => {};
  env.FONTCONFIG_FILE = file;
  return () => {
    delete env.FONTCONFIG_FILE;
  };
}

/**
 * Returns the value of a variable that holds a secret, without the white space and the byte order mark that files and
 * terminals leave at its ends; null when it is not set or empty.
 */
export function secretOf(name: string): string | null {
  return process.env[name]?.trim() || null;
}

const USER_DIRECTORIES = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"];

/**
 * Removes those of the user's directories that are no absolute paths, such as an empty `HOME`, so that the defaults of the
 * system count (XDG Base Directory Specification: a relative path is to be ignored). Call it before anything reads them.
 */
export function ignoreRelativeDirectories(env: NodeJS.ProcessEnv = process.env): void {
  if (process.platform === "win32") return;
  for (const name of USER_DIRECTORIES) if (!env[name]?.startsWith("/")) delete env[name];
}

/** This process's environment with more variables, for a child. Those that are undefined are left out. */
export function environmentWith(extra: Readonly<Record<string, string | undefined>>): NodeJS.ProcessEnv {
  return { ...process.env, ...extra };
}

/** The number of threads that libuv uses for files and images. It reads this variable itself. */
export function poolThreads(): number {
  return Number(process.env.UV_THREADPOOL_SIZE || 4);
}

/** The SDK for S3 otherwise warns on Node 20 that its later versions need Node 22. The version that is bundled does not change. */
export function hideNodeWarningOfAws(): void {
  process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = "true";
}

/**
 * Whether the standard variables of OpenTelemetry name a collector for traces. Its SDK reads them, and all others, itself:
 * then nothing here tells it to write to standard output, and no export takes longer than `mostMs`, which would delay a stop.
 */
export function beginTraces(mostMs: number, env: NodeJS.ProcessEnv = process.env): boolean {
  const endpoint = env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || env.OTEL_EXPORTER_OTLP_ENDPOINT;
  const isOff = env.OTEL_SDK_DISABLED?.trim().toLowerCase() === "true";
  if (!endpoint || isOff || (env.OTEL_TRACES_EXPORTER || "otlp") !== "otlp") return false;
  delete env.OTEL_LOG_LEVEL;
  const asked = Number(env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT || env.OTEL_EXPORTER_OTLP_TIMEOUT || mostMs);
  env.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT = String(asked > 0 && asked < mostMs ? asked : mostMs);
  return true;
}

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

/** Sets variables of this process; undefined removes one. Returns a function that brings back what was there before. */
export function putVariables(variables: Readonly<Record<string, string | undefined>>): () => void {
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  const put = (entries: Iterable<readonly [string, string | undefined]>) => {
    for (const [name, value] of entries) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
  put(Object.entries(variables));
  return () => put(before);
}
