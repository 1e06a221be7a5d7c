import { loadConfig } from "../../../../config/load.ts";
import type { Config } from "../../../../config/schema.ts";
import { isProceduralOnly } from "../../../../contract/data-directory.ts";
import { DEFAULT_ACCOUNT } from "../../../../service/admin.ts";
import type { RunCommand } from "../../../command-line/command-context.ts";
import { textOption } from "../../../command-line/option-values.ts";
import { configChoice } from "../../../service/config-choice.ts";
import { oneOf, readName, unknownAccount, wrongArgument } from "../arguments.ts";
import { done, withAdmin } from "../with-admin.ts";
import { parseExpiry } from "./expiry.ts";
import { keyFacts } from "./key-view.ts";

/**
 * `imgbatch admin keys create`: creates a key and shows it, only this once. For the default account, the data directory
 * may be new.
 */
export const run: RunCommand = async (context) => {
  const { options, global, clock, output } = context;
  const config = loadConfig(configChoice(context));
  const accountName = textOption(options, "account") ?? DEFAULT_ACCOUNT;
  const facts = {
    name: readName("--name", textOption(options, "name") ?? "unnamed"),
    accountName,
    group: readGroup(textOption(options, "group") ?? "default", config),
    expiresAtMs: readExpiry(textOption(options, "expires"), clock.nowMs()),
    isPlayMoney: isProceduralOnly(config),
  };
  return withAdmin(context, { mayCreate: accountName === DEFAULT_ACCOUNT }, async (admin) => {
    const made = await admin.createKey(facts);
    if (!made) throw await unknownAccount("--account", accountName, admin, global);
    const { id, name, ...rest } = keyFacts(made);
    if (!global.json) output.note(`key ${id}: save it now; it is not shown again`);
    return done({ id, name, key: made.key, ...rest }, [made.key]);
  });
};

function readGroup(name: string, { groups }: Config): string {
  if (groups.some((group) => group.name === name)) return name;
  const advice = `no group of the configuration has this name; ${oneOf(groups.map((group) => group.name))}`;
  throw wrongArgument("--group", name, advice);
}

function readExpiry(text: string | undefined, nowMs: number): number | null {
  if (text === undefined) return null;
  const ms = parseExpiry(text);
  const shape = "write a day such as 2030-01-31 (to its end, UTC) or a time such as 2030-01-31T18:00:00Z";
  if (ms === null) throw wrongArgument("--expires", text, shape);
  if (ms <= nowMs)
    throw wrongArgument("--expires", text, `this time is in the past; ${shape}, in the future`);
  return ms;
}
