import { createServiceHttp } from "../../../client/service-http.ts";
import { makeSignInCode } from "../../../client/sign-in-code.ts";
import { signInUrl } from "../../../contract/console-api.ts";
import { ImgbatchError } from "../../../contract/errors.ts";
import { EXIT_CODES } from "../../../contract/exit-codes.ts";
import { openPath } from "../../../processes/programs.ts";
import type { RunCommand } from "../../command-line/command-context.ts";
import { nextCommand } from "../../result/next-command.ts";
import { createServiceLocator } from "../../service/locate-service.ts";

/** `imgbatch console`: prints a link that signs in to the web console of the service, and opens it for a person. */
export const run: RunCommand = async (context) => {
  const { options, results, output, clock, signal } = context;
  const locate = await createServiceLocator(context);
  const service = await locate(signal);
  if (service === null)
    throw new ImgbatchError("NETWORK", "No service runs on the data directory.", {
      advice: `start one with ${nextCommand(context.global, "serve")}, or name a service with --base-url`,
    });
  const http = createServiceHttp({ ...service, clock, random: Math.random });
  const { code, expiresAt } = await makeSignInCode(http, signal);
  const url = signInUrl(service.baseUrl, code);
  const isOpen = results.isForPeople && options.open !== false && (await openPath(url));
  if (isOpen) output.note("opened in the browser");
  return { exitCode: EXIT_CODES.ok.code, json: { url, expires_at: expiresAt }, lines: [url] };
};
