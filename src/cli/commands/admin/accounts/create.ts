import type { RunCommand } from "../../../command-line/command-context.ts";
import { textOption } from "../../../command-line/option-values.ts";
import { readName, readUsd, wrongArgument } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { accountLines, accountView } from "./account-view.ts";

/** `imgbatch admin accounts create`: opens an account. The data directory may be new. */
export const run: RunCommand = async (context) => {
  const name = readName("<name>", context.arguments[0] ?? "");
  const balanceMicroUsd = readUsd("--balance", textOption(context.options, "balance") ?? "0", 0);
  return withAdmin(context, { mayCreate: true }, async (admin) => {
    const account = await admin.createAccount({ name, balanceMicroUsd });
    if (!account) throw wrongArgument("<name>", name, "an account has this name already; write another");
    return done(accountView(account), accountLines([account]));
  });
};
