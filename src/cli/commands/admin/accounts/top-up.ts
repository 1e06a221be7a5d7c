import { loadConfig } from "../../../../config/load.ts";
import { isProceduralOnly } from "../../../../contract/data-directory.ts";
import { formatUsd } from "../../../../kernel/money.ts";
import type { RunCommand } from "../../../command-line/command-context.ts";
import { configChoice } from "../../../service/config-choice.ts";
import { readUsd, unknownAccount, wrongArgument } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { accountLines, accountView } from "./account-view.ts";

/**
 * `imgbatch admin accounts top-up`: adds money to an account. Running it again adds the amount again. With an upstream in
 * the configuration, or once an upstream was asked for, the money is real: it goes to the real account of an account with
 * play money.
 */
export const run: RunCommand = async (context) => {
  const [name = "", usd = ""] = context.arguments;
  const amountMicroUsd = readUsd("<usd>", usd, 1);
  const { global, output } = context;
  const isReal = !isProceduralOnly(loadConfig(configChoice(context)));
  return withAdmin(context, { mayCreate: false }, async (admin) => {
    const account = await admin.topUp(name, amountMicroUsd, { isReal });
    if (!account) throw await unknownAccount("<name>", name, admin, global);
    if ("mostMicroUsd" in account) {
      const advice = `the account ${name} can take at most ${formatUsd(account.mostMicroUsd)} more`;
      throw wrongArgument("<usd>", usd, advice);
    }
    if (account.name !== name)
      output.note(`${name} has play money, which buys drawings only: ${account.name} pays for upstreams`);
    return done(accountView(account), accountLines([account]));
  });
};
