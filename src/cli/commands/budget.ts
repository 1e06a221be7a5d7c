import { formatUsd, microsToNumber, parseUsd } from "../../kernel/money.ts";
import type { Budget, MonthSpent } from "../../service/admin.ts";
import { type CommandContext, type CommandResult, defineCommand } from "../command.ts";
import * as option from "../options.ts";
import { type Column, tableLines } from "../output/table.ts";
import { withAdmin, wrongArgument } from "./admin-data.ts";
import { storageOptions } from "./shared-options.ts";

const options = {
  upstream: option.text({
    flags: "--upstream <name>",
    description: "only what this provider makes; default: all of them together",
  }),
  ...storageOptions,
};

export const command = defineCommand({
  arguments: [
    {
      name: "[amount]",
      description: "US dollars a day or a month of UTC, such as 20/month; none removes it",
    },
  ],
  options,
  examples: ["imgbatch budget 20/month", "imgbatch budget 5/day --upstream google", "imgbatch budget"],
  notes: [
    "Holds and captures of every command, of agents and of services on the data directory count. A command that would exceed a budget ends with exit 8 before anything is sent. Drawings and free upstreams cost nothing. `limits.budget` of a service's configuration is a budget of each account.",
  ],
  run,
});

/** The month that runs, and those before it. */
const MONTHS = 3;

/** `imgbatch budget`: sets a budget, or shows how all of them stand. */
function run(context: CommandContext<option.Values<typeof options>>): Promise<CommandResult> {
  const [amount] = context.arguments;
  const { upstream: name } = context.options;
  const budget = amount === undefined ? undefined : readBudget(amount);
  return withAdmin(context, { mayCreate: budget != null }, async (admin) => {
    if (budget !== undefined) await admin.setBudget(name ?? null, budget);
    const { budgets, months } = await admin.budgets(MONTHS);
    return {
      json: { budgets: budgets.map(budgetView), months: months.map(monthView) },
      lines: [
        ...(budgets.length === 0 ? ["no budget"] : tableLines(BUDGET_COLUMNS, budgets)),
        ...(months.length === 0 ? [] : ["", ...tableLines(MONTH_COLUMNS, months)]),
      ],
    };
  });
}

/** Returns the budget that is typed; null for `none`. Throws `USAGE`. */
function readBudget(text: string): { limitMicroUsd: number; per: "day" | "month" } | null {
  if (text === "none") return null;
  const [, usd = "", per] = /^([^/]+)\/(day|month)$/.exec(text.trim()) ?? [];
  const limitMicroUsd = parseUsd(usd);
  if (limitMicroUsd === null || (per !== "day" && per !== "month"))
    throw wrongArgument("amount", text, "write an amount a day or a month, such as 20/month, or none");
  return { limitMicroUsd, per };
}

const leftOf = ({ limitMicroUsd, spentMicroUsd, heldMicroUsd }: Budget) =>
  Math.max(0, limitMicroUsd - spentMicroUsd - heldMicroUsd);

function whoseBudget({ upstream, isOfEachAccount }: Budget): string {
  return isOfEachAccount ? "each account (all shown)" : (upstream ?? "all");
}

function budgetView(state: Budget): object {
  return {
    upstream: state.upstream,
    of_each_account: state.isOfEachAccount,
    usd: microsToNumber(state.limitMicroUsd),
    per: state.per,
    from: new Date(state.fromMs).toISOString(),
    until: new Date(state.beforeMs).toISOString(),
    spent: microsToNumber(state.spentMicroUsd),
    held: microsToNumber(state.heldMicroUsd),
    left: microsToNumber(leftOf(state)),
  };
}

function monthView({ month, provider, run, microUsd }: MonthSpent): object {
  return { month, upstream: provider, run, spent: microsToNumber(microUsd) };
}

const amounts = <Row>(title: string, of: (row: Row) => number): Column<Row> => ({
  title,
  align: "right",
  of: (row) => formatUsd(of(row)),
});
const BUDGET_COLUMNS: readonly Column<Budget>[] = [
  { title: "upstream", of: whoseBudget },
  { title: "budget", align: "right", of: ({ limitMicroUsd, per }) => `${formatUsd(limitMicroUsd)}/${per}` },
  amounts("spent", ({ spentMicroUsd }) => spentMicroUsd),
  amounts("held", ({ heldMicroUsd }) => heldMicroUsd),
  amounts("left", leftOf),
];
const MONTH_COLUMNS: readonly Column<MonthSpent>[] = [
  { title: "month", of: ({ month }) => month },
  { title: "upstream", of: ({ provider }) => provider },
  { title: "run", of: ({ run }) => run ?? "(real time)" },
  amounts("spent", ({ microUsd }) => microUsd),
];
