/** The service that makes the images, as for every command of imgbatch, and how a program follows the work. */
export interface CommonOptions {
  /** The URL of a service. Default: the service of this machine, or one that starts for this call and ends with it. */
  baseUrl?: string;
  /** A file with the key for `baseUrl`. Default: the variable `IMGBATCH_API_KEY`. */
  apiKeyFile?: string;
  /** The data directory of the service. Default: that of the user. */
  data?: string;
  /** The configuration file. Default: `imgbatch.config.json` in `cwd`. */
  config?: string;
  /** The directory of relative paths. Default: the working directory. */
  cwd?: string;
  /** Stops the work as Ctrl-C does: the call rejects with `INTERRUPTED`, and the same call goes on later. */
  signal?: AbortSignal;
  /** Gets each line that the command would write to stderr. */
  onNote?(line: string): void;
  /** Gets each event of the run, as `--events` writes them. */
  onEvent?(event: { event: string; [fact: string]: unknown }): void;
}

/** The upstream, the picture and its price. `submit` uses what a line of the prompts does not say itself. */
export interface ImageOptions extends CommonOptions {
  /**
   * The upstream that makes the images: a provider of the configuration file; if that has none, google,
   * google-batch, openai, openai-batch, openrouter, together, xai, replicate, bfl, localai, ollama, sdapi or
   * command.
   */
  upstream?: string;
  /**
   * Width to height, such as 1:1, 3:2 or 16:9. Default: that of the first reference image, else the model
   * decides.
   */
  aspectRatio?: string;
  /** 512, 1K, 2K or 4K, or pixels such as 1536x1024, if the model makes them. Default: 1K. */
  size?: string;
  /** A quality of the model, such as low or high. Default: the model's own. */
  quality?: string;
  /** Transparent (PNG or WebP), opaque or auto. Default: auto. */
  background?: "transparent" | "opaque" | "auto";
  /** The seed of the first image of each prompt; each further one adds 1. */
  seed?: number | string;
  /** What the images must not show. */
  negativePrompt?: string;
  /** Send nothing that may cost more; with a paid upstream: agree to pay up to this. */
  maxCost?: number | string;
  /** Price of an image, if the service does not publish it, or the model has none here. */
  unitCost?: number | string;
  /**
   * When the answer to a paid request was lost: stop asks nobody again until `retry --include-lost`; once
   * sends one more request, and marks the image. Default: stop, or limits.unknownOutcome of the
   * configuration.
   */
  unknown?: "stop" | "once";
}

/** The options of `imgbatch submit`, by their names in camel case: `--max-cost 5` is `maxCost: 5`. */
export interface SubmitOptions extends ImageOptions {
  /** The model of lines that name none. Default: the first of `imgbatch models`. */
  model?: string;
  /** A name for the run. Default: the stem of the first file. */
  name?: string;
  /** The directory of the run. Default: <stem of the first file>-images. */
  output?: string;
  /**
   * The format of all prompt files: jsonl, txt, csv or tsv. Default: by the ending of each; jsonl for
   * standard input.
   */
  format?: "jsonl" | "txt" | "csv" | "tsv";
  /** {{name}} stands for each of these values, such as animal=fox,owl or season=@seasons.txt. */
  var?: readonly string[];
  /** An image of each prompt from each of these files, such as 'photos/*.jpg'; {{image}} is the name. */
  images?: string;
  /** The prompt of every line, with its columns as {{column}} and its own prompt as {{prompt}}. */
  prompt?: string;
  /** The column or field of the prompts. Default: prompt. */
  promptColumn?: string;
  /** The column or field of the ids, which name the images. Default: custom_id. */
  idColumn?: string;
  /** A reference image of every prompt, behind its own ones. */
  reference?: readonly string[];
  /** Images for each prompt that sets no output_count. Default: 1. */
  count?: number | string;
  /** image/png, image/jpeg or image/webp. Default: image/png. */
  mimeType?: "image/png" | "image/jpeg" | "image/webp";
  /** A pair to store with the batch. */
  metadata?: readonly string[];
  /**
   * Make a file of each picture besides those of the run, from the prompt file on, such as
   * 'public/{{slug}}.webp'; a line's own wins.
   */
  file?: string;
  /** The format of such files, where their names have no ending. */
  fileFormat?: "png" | "jpeg" | "webp" | "avif";
  /** Such files may lie below this directory, too. Default: the directory of the prompt file. */
  root?: string;
  /** Replace such files also where others made or changed them. */
  force?: boolean;
  /** False: such files do not say in their metadata (XMP) that they are made by AI. */
  mark?: boolean;
  /** The id of the batch that this one retries. */
  parent?: string;
  /** At most this many images in a batch. Default: 200. */
  maxBatch?: number | string;
  /** Print the batch ids and do not wait. */
  detach?: boolean;
  /**
   * How many images are made at once by the service inside imgbatch; a number in the configuration wins.
   * Default: 4, or what the upstream's preset says.
   */
  concurrency?: number | string;
  /** Stop waiting after this time, such as 45m; the batch goes on. */
  timeout?: string;
  /**
   * Time between two polls of a batch; at least 10s for a remote service. Default: chosen from the service's
   * answers and the time passed.
   */
  interval?: string;
  /** Exit 0 with up to this many failed images. Default: 0. */
  allowFailures?: string;
  /** Cancel the batches when this command is interrupted. */
  cancelOnInterrupt?: boolean;
  /** Write JUnit XML with a test case for each image. */
  junit?: string;
  /** Write a Markdown summary, failures first. */
  markdown?: string;
  /** Write index.html, the contact sheet (default). */
  gallery?: boolean;
  /** Open the contact sheet at the end; without a desktop, print its path. */
  open?: boolean;
  /**
   * Let this program decide about each picture without a verdict, such as 'node judge.mjs': it reads a JSON
   * line, and prints {"verdict": "keep", "score": 0.8, "note": ""}.
   */
  judge?: string;
  /** How long the judge may take for a picture. Default: 60s. */
  judgeTimeout?: string;
  /** Of several images of a prompt, choose the one with the judge's highest score. */
  best?: boolean;
  /**
   * Check and count the prompts, and say what they cost; submit nothing (with -v: the idempotency keys).
   */
  dryRun?: boolean;
  /** With --dry-run: print each prompt with its values, as a prompt file. */
  expand?: boolean;
  /** After the prompts were edited: make only changed and added ones, keep the others. */
  update?: boolean;
  /**
   * Keep a lock file beside each prompt file (prompts.lock) that says which picture each prompt has; where
   * there is one, it is kept.
   */
  lock?: boolean;
  /** Also make pictures of the lock file that are not here any more, which is paid again. */
  includeLost?: boolean;
  /** Refuse unknown fields, columns and variables instead of keeping them. */
  strict?: boolean;
  /** Generate and pay again, even if the same run was submitted before. */
  new?: boolean;
  /** Use this key instead of one made from the content. */
  idempotencyKey?: string;
  /**
   * Name the files by `id`, by id and `words` of the prompt, or `auto`: words for prompts without an id of
   * their own. Default: auto; a run keeps its names.
   */
  names?: "id" | "words" | "auto";
  /** False: leave images that failed before as they are; without it, they are made again. */
  retry?: boolean;
  /** Keep the ZIP instead of unpacking it; all images then come at the end. */
  zip?: boolean;
}

/** The options of `imgbatch generate`. */
export interface GenerateOptions extends ImageOptions {
  /** The image file, or a directory in which the prompt names it. Default: `cwd`. */
  output?: string;
  /** Input images to edit or follow (PNG, JPEG, WebP). */
  image?: readonly string[];
  /** The model. Default: the first of `imgbatch models --realtime`. */
  model?: string;
  /** image/png, image/jpeg or image/webp. Default: by the ending of `output`, else image/png. */
  mimeType?: "image/png" | "image/jpeg" | "image/webp";
  /** Replace an existing file. */
  force?: boolean;
  /** Further attempts after a temporary error, 0 to 3. Default: 3. */
  retries?: number | string;
  /**
   * Stop everything after this time; a single attempt may take 120 s (512, 1K), 180 s (2K) or 300 s (4K).
   */
  timeout?: string;
}

/** A prompt as a line of a prompt file has it. Its other fields are in `imgbatch schema prompts`. */
export interface Prompt {
  prompt: string;
  /** The id of its image. Default: `item_` and its number. */
  custom_id?: string;
  [field: string]: unknown;
}

/** An image of a run, as in `results.jsonl`. */
export interface RunItem {
  custom_id: string;
  status: string;
  /** Paths from the directory of the run. Absent where there is no image. */
  files?: { path: string; sha256: string; bytes: number; mime_type: string; width: number; height: number }[];
  /** Why there is no image. */
  error?: { code: string; message: string };
  [fact: string]: unknown;
}

/** What `--json` prints of a run: `ok` is false when an image is missing. */
export interface RunResult {
  ok: boolean;
  exit_code: number;
  /** The directory of the run. */
  directory: string;
  items: RunItem[];
  /** US dollars. */
  actual_cost?: number | null;
  paid_now?: number | null;
  [fact: string]: unknown;
}

/** What `--json` prints of one image. */
export interface ImageResult {
  ok: boolean;
  exit_code: number;
  /** The file of the image. */
  path: string;
  sha256: string;
  bytes: number;
  mime_type: string;
  width: number;
  height: number;
  model: string;
  /** US dollars. */
  cost: number | null;
  [fact: string]: unknown;
}

/**
 * Makes the images of prompts, waits, downloads and verifies, as `imgbatch submit` does: the same call continues what was stopped,
 * and pays nothing twice. `prompts`: the path of a prompt file, or the prompts themselves, as texts or as lines of such a file.
 * Resolves also when some images failed: look at `ok`. Rejects with an `ImgbatchError` for everything else.
 */
export function submit(
  prompts: string | readonly (string | Prompt)[],
  options?: SubmitOptions,
): Promise<RunResult>;

/** Makes one image now, as `imgbatch generate` does. Every call makes and pays another one. Rejects with an `ImgbatchError`. */
export function generate(prompt: string, options?: GenerateOptions): Promise<ImageResult>;

/** The options of `imgbatch serve` that a program has use for. */
export interface ServiceOptions {
  /** Default: a free one. */
  port?: number;
  /** Default: 127.0.0.1. */
  host?: string;
  /** The data directory. Default: a temporary one, which is removed when the service is closed. */
  data?: string;
  config?: string;
  /** The upstream that makes the images. Default: that of the configuration, else drawings. */
  upstream?: string;
  /** Serves this vendor's client libraries, with its model ids and key header. */
  vendor?: "google";
  /** Slows down or fails drawings, for example `latency=2s,fail=0.1,seed=7`. */
  simulate?: string;
  /** Lets tests order faults and read the requests, at `/imgbatch/test`. */
  test?: boolean;
  cwd?: string;
  /** Gets each line of the service's log from `warn` on. */
  onNote?(line: string): void;
}

/** A service of this process. */
export interface Service {
  url: string;
  /** The key of the service's owner. */
  apiKey: string;
  /** The data directory. */
  data: string;
  /** Stops it. Running images get `graceMs` (default: none); those that cost money are waited for. */
  close(graceMs?: number): Promise<void>;
}

/** Starts a service in this process. Rejects with an `ImgbatchError`. */
export function startService(options?: ServiceOptions): Promise<Service>;

/** Every failure. Decide by `code`, never by the message. */
export class ImgbatchError extends Error {
  readonly code: string;
  /** The field or flag at fault, when it is one. */
  readonly param: string | undefined;
  /** The HTTP status of the answer; 0 where there was none. */
  readonly httpStatus: number;
  /** More than one finding, a line each, as for a prompt file. */
  readonly details: readonly string[] | undefined;
  /** What to do next, where it is known. */
  readonly advice: string | undefined;
}
