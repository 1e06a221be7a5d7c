import { ImgbatchError } from "../../../../contract/errors.ts";
import type { CommandContext, CommandResult } from "../../../command-line/command-context.ts";
import { wrongArgument } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { keyLines, keyView } from "./key-view.ts";

const SEE_LIST = "imgbatch admin keys list shows the ids";

/** Disables the key that the command names, or enables it again. Doing it twice is no error. */
export async function setDisabled(context: CommandContext, isDisabled: boolean): Promise<CommandResult> {
  const [id = ""] = context.arguments;
  // A whole key must not be repeated in a message.
  if (id.startsWith("imgb_")) {
    throw new ImgbatchError("USAGE", `<id>: this is a key, not its id; ${SEE_LIST}.`, { param: "<id>" });
  }
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const key = await admin.setKeyDisabled(id, isDisabled);
    if (!key) throw wrongArgument("<id>", id, `no key has this id; ${SEE_LIST}`);
    if (key.state === "expired") context.output.note("the key has expired: it is refused all the same");
    return done(keyView(key), keyLines([key]));
  });
}
