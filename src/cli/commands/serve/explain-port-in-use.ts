import { dataDirectoryOf } from "../../../config/paths.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { readEnvironment } from "../../../environment.ts";
import { shellWord } from "../../../runs/reports/run-report.ts";
import { isProof, proofAt, readServer } from "../../service/running-service.ts";

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
    const server = readServer(directory);
    if (server === null || !isProof(proof, server)) continue;
    const message = `${where} is taken by the imgbatch service with the data directory ${directory} (process ${server.pid}).`;
    const advice = adviceFor(`use that service (--data ${shellWord(directory)})`);
    return new ImgbatchError("ADDRESS_IN_USE", message, { advice, cause: thrown });
  }
  const message = `${where} is taken by another imgbatch service, whose data directory is unknown here.`;
  const advice = adviceFor("use that service");
  return new ImgbatchError("ADDRESS_IN_USE", message, { advice, cause: thrown });
}

function adviceFor(first: string): string {
  return `${first}, stop it, or run the same command with --port 0, which takes a free port`;
}
