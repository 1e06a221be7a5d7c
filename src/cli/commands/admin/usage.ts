import { loadConfig } from "../../../config/load.ts";
import { amountText, formatUsd, microsToNumber } from "../../../kernel/money.ts";
import type { UsageLine } from "../../../service/admin.ts";
import type { CommandContext, RunCommand } from "../../command-line/command-context.ts";
import { choiceOption, instantOption } from "../../command-line/option-values.ts";
import { configChoice } from "../../service/config-choice.ts";
import { type Column, tableLines } from "../../terminal/table.ts";
import { USAGE_GROUPS, wrongArgument } from "./arguments.ts";
import { parseExpiry } from "./keys/expiry.ts";
import { done, withAdmin } from "./with-admin.ts";

const DAY_MS = 86_400_000;

/** `imgbatch admin usage`: what providers were asked and what it cost, in groups. */
export const run: RunCommand = (context) =>
  withAdmin(context, { mayCreate: false }, async (admin) => {
    const by = choiceOption(context.options, "by", USAGE_GROUPS) ?? "day";
    const from = readMoment(context, "from");
    const to = readMoment(context, "to");
    const { providers } = loadConfig(configChoice(context));
    const drawings = new Set(providers.flatMap(({ name, type }) => (type === "procedural" ? [name] : [])));
    const lines = await admin.usage({ by, fromMs: from?.firstMs, beforeMs: to?.endMs, drawings });
    const key: Column<UsageLine> = { title: by, of: (line) => line.key };
    return done({ usage: lines.map((line) => usageView(by, line)) }, tableLines([key, ...COLUMNS], lines));
  });

/** The time of an option: a day from its beginning to its end, else one moment. Throws `USAGE` for a day that does not exist. */
function readMoment(
  { options, clock }: CommandContext,
  name: "from" | "to",
): { firstMs: number; endMs: number } | undefined {
  const text = instantOption(options, name, clock.nowMs());
  if (text === undefined) return undefined;
  const endMs = parseExpiry(text);
  if (endMs === null) throw wrongArgument(`--${name}`, text, "write a day or a time that exists");
  return { firstMs: text.includes(":") ? endMs : endMs - DAY_MS, endMs };
}

function usageView(by: string, line: UsageLine): object {
  return {
    [by]: line.key,
    requests: line.requests,
    images: line.images,
    errors: line.errors,
    may_be_paid_twice: line.maybePaidTwice,
    billed: microsToNumber(line.billedMicroUsd),
    ...(line.playMicroUsd === 0 ? {} : { billed_in_play_money: microsToNumber(line.playMicroUsd) }),
    upstream_cost: microsToNumber(line.costMicroUsd),
    input_tokens: line.inputTokens,
    output_tokens: line.outputTokens,
  };
}

function billedText({ billedMicroUsd, playMicroUsd }: UsageLine): string {
  const real = billedMicroUsd - playMicroUsd;
  const play = playMicroUsd === 0 ? [] : [amountText({ micros: playMicroUsd, isPlay: true })];
  return [...(real > 0 || play.length === 0 ? [formatUsd(real)] : []), ...play].join(", ");
}

const counted = (title: string, of: (line: UsageLine) => number | string): Column<UsageLine> => ({
  title,
  align: "right",
  of: (line) => String(of(line)),
});
const COLUMNS: readonly Column<UsageLine>[] = [
  counted("requests", ({ requests }) => requests),
  counted("images", ({ images }) => images),
  counted("errors", ({ errors }) => errors),
  counted("paid twice?", ({ maybePaidTwice }) => maybePaidTwice),
  counted("billed", billedText),
  // Most upstreams report no costs.
  counted("upstream cost", ({ costMicroUsd }) => (costMicroUsd === 0 ? "-" : formatUsd(costMicroUsd))),
  counted("tokens in", ({ inputTokens }) => inputTokens),
  counted("tokens out", ({ outputTokens }) => outputTokens),
];
