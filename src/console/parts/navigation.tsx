import { useSyncExternalStore } from "react";
import type { AccountObject } from "../../contract/console-api.ts";
import { FREE_DRAWINGS } from "../../kernel/money.ts";
import { Icon, type IconName } from "./notes.tsx";
import { isPlayOnly, usd } from "./status.tsx";

/** The place in the console that the address names: `#/batches/imgbatch_1/fox` has the parts `batches`, `imgbatch_1`, `fox`. */
type Route = readonly string[];

/** The address of a place. */
export function hrefOf(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Goes to a place. `replace` leaves no entry in the history. */
export function go(href: string, { replace = false } = {}): void {
  if (replace) {
    history.replaceState(null, "", href);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = href;
  }
}

/** The place that the address names now. */
export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (listener) => {
      addEventListener("hashchange", listener);
      return () => removeEventListener("hashchange", listener);
    },
    () => location.hash,
  );
  return hash
    .replace(/^#\/?/, "")
    .split("/")
    .filter((part) => part !== "")
    .map(decoded);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const LINKS: readonly { place: string; icon: IconName; label: string; isOwners?: true }[] = [
  { place: "batches", icon: "batches", label: "Batches" },
  { place: "new", icon: "add", label: "New batch" },
  { place: "image", icon: "image", label: "One image" },
  { place: "money", icon: "money", label: "Money" },
  { place: "service", icon: "service", label: "Service", isOwners: true },
];

/** The ways to all pages: at the side, or below on a phone. */
export function Navigation(props: {
  account: AccountObject | null;
  onSignOut: () => void;
  onHelp: () => void;
}) {
  const { account, onSignOut, onHelp } = props;
  const [place = "batches"] = useRoute();
  const money = account?.real_money ?? account;
  return (
    <header className="side">
      <div className="brand">
        <img src="./icon.svg" alt="" />
        <span>imgbatch</span>
      </div>
      <nav aria-label="Pages">
        {LINKS.filter(({ isOwners }) => !isOwners || account?.owner).map(({ place: each, icon, label }) => (
          <a key={each} href={hrefOf(each)} aria-current={each === place ? "page" : undefined}>
            <Icon name={icon} />
            <span>{label}</span>
          </a>
        ))}
      </nav>
      <div className="side-end">
        {money && (
          <a className="balance" href={hrefOf("money")}>
            {account && isPlayOnly(account) ? (
              <span>{FREE_DRAWINGS}</span>
            ) : (
              <>
                <b>{usd(money.balance, "sum")}</b>
                <span>balance</span>
              </>
            )}
          </a>
        )}
        {account && (
          <p className="who" title={`key ${account.key.prefix}…`}>
            key {account.key.name}
          </p>
        )}
        <div className="side-buttons">
          <button type="button" className="button plain" onClick={onHelp} title="Shortcuts (?)">
            <Icon name="help" />
            <span>Shortcuts</span>
          </button>
          <button type="button" className="button plain" onClick={onSignOut}>
            <Icon name="out" />
            <span>Sign out</span>
          </button>
        </div>
      </div>
    </header>
  );
}
