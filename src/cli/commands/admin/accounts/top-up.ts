import type { RunCommand } from "../../../command-line/command-context.ts";
import { readUsd, unknownAccount } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { accountLines, accountView } from "./account-view.ts";

/** `imgbatch admin accounts top-up`: adds money to an account. Every call adds: it is no "set to". */
export const run: RunCommand = async (context) => {
  const [name = "", usd = ""] = context.arguments;
  const amountMicroUsd = readUsd("<usd>", usd, 1);
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const account = await admin.topUp(name, amountMicroUsd);
    if (!account) throw await unknownAccount("<name>", name, admin);
    return done(accountView(account), accountLines([account]));
  });
};
