import { ImgbatchError } from "../../../../contract/errors.ts";
import type { CommandContext, CommandResult, RunCommand } from "../../../command-line/command-context.ts";
import { nextCommand } from "../../../result/next-command.ts";
import { wrongArgument } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { keyLines, keyView } from "./key-view.ts";

/** `imgbatch admin keys disable`: the service refuses the key from its next request on. */
export const disable: RunCommand = (context) => setDisabled(context, true);

/** `imgbatch admin keys enable`: the service accepts a disabled key again. */
export const enable: RunCommand = (context) => setDisabled(context, false);

/** Disables the key with the id in the arguments, or enables it again. Repeating it is no error. */
async function setDisabled(context: CommandContext, isDisabled: boolean): Promise<CommandResult> {
  const [id = ""] = context.arguments;
  const seeList = `${nextCommand(context.global, "admin", "keys", "list")} shows the ids`;
  // A whole key must not be repeated in a message.
  if (id.startsWith("imgb_")) {
    throw new ImgbatchError("USAGE", `<id>: this is a key, not its id; ${seeList}.`, { param: "<id>" });
  }
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const key = await admin.setKeyDisabled(id, isDisabled);
    if (!key) throw wrongArgument("<id>", id, `no key has this id; ${seeList}`);
    if (key.state === "expired") context.output.note("the key has expired, so the service still refuses it");
    return done(keyView(key), keyLines([key]));
  });
}
