import { ImgbatchError } from "../../../contract/errors.ts";
import { systemCodeOf } from "../../../kernel/system-errors.ts";

/** What requests to S3 are signed with. */
export interface S3Keys {
  accessKeyId: string;
  secretAccessKey: string;
  /** Belongs to keys that expire. */
  sessionToken?: string | undefined;
}

/** An optional package: whoever has fixed keys does without its 25 packages. */
const PACKAGE = "@aws-sdk/credential-provider-node";

/**
 * Returns a function that returns the keys of the role of this process: of its web identity, its container or its machine, or of
 * a profile, as Amazon's own programs find them in the environment, which the package reads itself. It refreshes keys in the
 * last five minutes before they expire, while the old ones are still used. `place` is the bucket in words. Throws
 * `INVALID_CONFIG` when the package is missing or finds no keys.
 */
export async function roleKeys(place: string): Promise<() => Promise<S3Keys>> {
  const unset = `storage.blobs: ${place} needs keys: AWS_ACCESS_KEY_ID is not set`;
  const fixed = "export AWS_ACCESS_KEY_ID=<id>; export AWS_SECRET_ACCESS_KEY=<secret>";
  const { defaultProvider } = await import("@aws-sdk/credential-provider-node").catch((cause) => {
    const message = `${unset}, and for those of a role, ${PACKAGE} is not installed.`;
    const advice = `${fixed}; or, where this process has a role: npm install --global ${PACKAGE}`;
    throw new ImgbatchError("INVALID_CONFIG", message, { advice, cause });
  });
  const provide = defaultProvider();
  const keys = () =>
    provide().catch((error) => {
      throw new NoKeys(error);
    });
  await keys().catch((cause: NoKeys) => {
    const advice = `${fixed}; or give this process a role, then run the same command again`;
    throw new ImgbatchError("INVALID_CONFIG", `${unset}, and ${cause.message}.`, { advice, cause });
  });
  return keys;
}

/** The role has no keys for now. What the source of keys has answered may hold them, so a message that quotes it is left out. */
class NoKeys extends Error {
  readonly code = "NO_KEYS";

  constructor(error: unknown) {
    const { name, message } = error as Error;
    const isQuoted = name === "SyntaxError" || systemCodeOf(error).startsWith("ERR_");
    super(
      `this process has no role with keys (${isQuoted ? "the answer cannot be read" : firstLine(message)})`,
    );
    this.name = "NoKeys";
  }
}

const firstLine = (text: string) => (text.split("\n")[0] ?? "").replace(/\.$/, "");
