import { makeSignInCode } from "../../client/batches.ts";
import { signInUrl } from "../../contract/console-api.ts";
import { ImgbatchError } from "../../contract/errors.ts";
import { openPath } from "../../processes/programs.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import { createServiceLocator, httpTo } from "../connect/connect.ts";
import * as option from "../options.ts";
import { nextCommand } from "../output/next-step.ts";

const options = {
  noOpen: option.flag({ flags: "--no-open", description: "print the link, and open no browser" }),
};

export const command = defineCommand({
  options,
  examples: ["imgbatch console", "imgbatch console --no-open"],
  notes: [
    "The link signs in once, within 10 minutes. Whoever opens it first can use the service with your key.",
  ],
  exits: ["auth", "temporary", "gone"],
  run,
});

/** `imgbatch console`: prints a link that signs in to the web console of the service, and opens it for a person. */
async function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const { options, results, output, signal } = context;
  const locate = await createServiceLocator(context);
  const service = await locate();
  if (service === null)
    throw new ImgbatchError("NETWORK", "No service runs on the data directory.", {
      advice: `start one with ${nextCommand(context.global, "serve")}, or name a service with --base-url`,
    });
  const { code, expiresAt } = await makeSignInCode(httpTo(service, context), signal);
  const url = signInUrl(service.baseUrl, code);
  const isOpen = results.isForPeople && !options.noOpen && (await openPath(url));
  if (isOpen) output.note("opened in the browser");
  return { json: { url, expires_at: expiresAt }, lines: [url] };
}
