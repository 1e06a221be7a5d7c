import { dataDirectoryOf } from "../../../config/places.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { readEnvironment } from "../../../environment.ts";
import { askProof, isProof, type Proof, readServer } from "../../service/running-service.ts";

/**
 * Returns the error for a port that another process uses. If a service of this program uses it, the message says so,
 * with its process and data directory where they are known. Returns any other error unchanged.
 */
export async function explainPortInUse(
  thrown: unknown,
  address: { host: string; port: number },
  cwd: string,
): Promise<unknown> {
  if (!(thrown instanceof ImgbatchError) || thrown.code !== "ADDRESS_IN_USE") return thrown;
  const proof = await proofAt(address);
  if (proof === null) return thrown;
  const where = `${address.host}:${address.port}`;
  const environment = readEnvironment();
  const usual = dataDirectoryOf(undefined, { ...environment, dataDirectory: undefined }, cwd);
  for (const directory of new Set([dataDirectoryOf(undefined, environment, cwd), usual])) {
    const server = await readServer(directory);
    if (server === null || !isProof(proof, server)) continue;
    const message = `${where} is taken by the imgbatch service with the data directory ${directory} (process ${server.pid}).`;
    return new ImgbatchError("ADDRESS_IN_USE", message, { advice: ADVICE, cause: thrown });
  }
  const message = `${where} is taken by another imgbatch service, whose data directory is unknown here.`;
  return new ImgbatchError("ADDRESS_IN_USE", message, { advice: ADVICE, cause: thrown });
}

const ADVICE = "use that service, stop it, or run the same command with --port 0, which takes a free port";

/** Returns null if no service of this program answers. */
async function proofAt({ host, port }: { host: string; port: number }): Promise<Proof | null> {
  const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  const name = reachable.includes(":") ? `[${reachable}]` : reachable;
  return askProof(`http://${name}:${port}`).catch(() => null);
}
