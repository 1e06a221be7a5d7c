import type { AccountObject } from "../../../contract/console-api.ts";
import { getUsage } from "../../api/account.ts";
import { useAccount } from "../../hooks/use-account.ts";
import { useData } from "../../hooks/use-data.ts";
import { ErrorNote } from "../../parts/notes.tsx";
import { isPlayOnly, usd } from "../../parts/words.ts";
import { Ledger } from "./ledger.tsx";
import { SpendByDay } from "./spend-by-day.tsx";

/** The money of the account, and where it went. */
export function MoneyPage() {
  const account = useAccount();
  const isPlay = account !== null && isPlayOnly(account);
  const usage = useData("usage", getUsage, (change) => change.kind === "account");
  return (
    <>
      <div className="page-head">
        <h1>Money</h1>
      </div>
      {account && !isPlay && <Balances account={account} />}
      <section className="block">
        <h2>{isPlay ? "Made in 30 days" : "Spent in 30 days"}</h2>
        <ErrorNote error={usage.error} />
        {usage.value && <SpendByDay usage={usage.value} isPlay={isPlay} />}
      </section>
      {account && !isPlay && <Ledger hasPlay={account.play_money} />}
    </>
  );
}

function Balances({ account }: { account: AccountObject }) {
  const { balance, held } = account.real_money ?? account;
  return (
    <dl className="sums">
      <Sum label={account.real_money ? "real money" : "balance"} amount={balance} />
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
