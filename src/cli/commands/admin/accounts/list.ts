import type { RunCommand } from "../../../command-line/command-context.ts";
import { done, withAdmin } from "../with-admin.ts";
import { accountLines, accountView } from "./account-view.ts";

/** `imgbatch admin accounts list`: every account, oldest first. */
export const run: RunCommand = (context) =>
  withAdmin(context, { mayCreate: false }, async (admin) => {
    const accounts = await admin.accounts();
    // Scripts rely on the bare list: the other lists have a name in an object.
    return done(accounts.map(accountView), accountLines(accounts));
  });
