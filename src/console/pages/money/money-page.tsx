import type { AccountObject } from "../../../contract/console-api/account.ts";
import { getUsage } from "../../api/account.ts";
import { useAccount } from "../../hooks/use-account.ts";
import { useData } from "../../hooks/use-data.ts";
import { ErrorNote } from "../../parts/notes.tsx";
import { usd } from "../../parts/words.ts";
import { Ledger } from "./ledger.tsx";
import { SpendByDay } from "./spend-by-day.tsx";

/** The money of the account, and where it went. */
export function MoneyPage() {
  const account = useAccount();
  const usage = useData("usage", getUsage, (change) => change.kind === "account");
  return (
    <>
      <div className="page-head">
        <h1>Money</h1>
      </div>
      {account && <Balances account={account} />}
      <section className="block">
        <h2>Spent in 30 days</h2>
        <ErrorNote error={usage.error} />
        {usage.value && <SpendByDay usage={usage.value} />}
      </section>
      <Ledger />
    </>
  );
}

function Balances({ account }: { account: AccountObject }) {
  const { balance, held, real_money, play_money } = account;
  return (
    <dl className="sums">
      {real_money && (
        <>
          <Sum label="real money" amount={real_money.balance} />
          <Sum label="of it held" amount={real_money.held} />
        </>
      )}
      <Sum label={play_money ? "play money, for drawings" : "balance"} amount={balance} />
      <Sum label="held for what runs" amount={held} />
    </dl>
  );
}

function Sum({ label, amount }: { label: string; amount: number }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{usd(amount)}</dd>
    </div>
  );
}
