import "./styles/base.css";
import "./styles/controls.css";
import "./styles/layout.css";
import "./styles/lists.css";
import "./styles/gallery.css";
import "./styles/large-view.css";
import "./styles/forms.css";
import "./styles/review.css";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { createRoot } from "react-dom/client";
import type { AccountObject } from "../contract/console-api.ts";
import { PATHS } from "../contract/routes.ts";
import { FREE_DRAWINGS } from "../kernel/money.ts";
import { followChanges } from "./api/changes.ts";
import { currentSession, fetchJson, onSession, type StoredSession, signIn, signOut } from "./api/request.ts";
import { BatchPage } from "./pages/batch/batch-page.tsx";
import { BatchesPage } from "./pages/batches.tsx";
import { MoneyPage } from "./pages/money.tsx";
import { DraftProvider } from "./pages/new-batch/draft.tsx";
import { NewBatchPage } from "./pages/new-batch/new-batch-page.tsx";
import { OneImagePage, ShotsProvider } from "./pages/one-image.tsx";
import { isReview, ReviewPage, UsedLinkPage } from "./pages/review/review-page.tsx";
import { ServicePage } from "./pages/service.tsx";
import { SignInPage } from "./pages/sign-in.tsx";
import { takeDrops } from "./parts/drop-area.tsx";
import { HelpDialog, type KeyHelp, useKeys } from "./parts/keys.tsx";
import { Announcer, Icon } from "./parts/notes.tsx";
import { pictures } from "./parts/pictures.tsx";
import { batchIdsOf, go, hrefOf, useRoute } from "./parts/route.ts";
import { balanceOf, isPlayOnly, usd } from "./parts/status.tsx";
import { AccountContext, useData } from "./parts/use-data.ts";

/** The pages. `key` after `g` leads to one. */
const LINKS: readonly {
  key: string;
  place: string;
  icon: Parameters<typeof Icon>[0]["name"];
  label: string;
  isOwners?: true;
}[] = [
  { key: "b", place: "batches", icon: "batches", label: "Batches" },
  { key: "n", place: "new", icon: "add", label: "New batch" },
  { key: "i", place: "image", icon: "image", label: "One image" },
  { key: "m", place: "money", icon: "money", label: "Money" },
  { key: "s", place: "service", icon: "service", label: "Service", isOwners: true },
];

/** The console: the sign-in page, or the pages of a key; or the one page of `imgbatch review`, which serves no other. */
function App({ signInProblem }: { signInProblem: Error | null }) {
  const session = useSyncExternalStore(onSession, currentSession);
  if (session === null)
    return (
      <>
        {isReview ? <UsedLinkPage problem={signInProblem} /> : <SignInPage problem={signInProblem} />}
        <Announcer />
      </>
    );
  if (isReview) return <ReviewPage />;
  return <SignedIn key={session.id} session={session} />;
}

const LEADER_MS = 1500;

function SignedIn({ session }: { session: StoredSession }) {
  const [isHelping, setHelping] = useState(false);
  const account = useData(
    "account",
    (signal) => fetchJson<AccountObject>(PATHS.account, { signal }),
    (change) => change.kind === "account",
  );
  useEffect(() => {
    const stop = new AbortController();
    followChanges(session, stop.signal);
    return () => {
      stop.abort();
      pictures.clear();
    };
  }, [session]);
  const [ledAtMs, setLedAtMs] = useState(0);
  const places = LINKS.map(({ key, place }) => [
    key,
    () => {
      if (Date.now() - ledAtMs < LEADER_MS) go(hrefOf(place));
    },
  ]);
  useKeys({
    ...Object.fromEntries(places),
    g: () => setLedAtMs(Date.now()),
    "?": () => setHelping(true),
  });
  return (
    <AccountContext value={account}>
      <button type="button" className="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the content
      </button>
      <Navigation account={account.value} onSignOut={signOut} onHelp={() => setHelping(true)} />
      <main id="main" className="page" tabIndex={-1}>
        <ShotsProvider>
          <DraftProvider>
            <Page />
          </DraftProvider>
        </ShotsProvider>
      </main>
      {isHelping && <HelpDialog keys={KEY_HELP} onClose={() => setHelping(false)} />}
      <Announcer />
    </AccountContext>
  );
}

function Page() {
  const [place, ...rest] = useRoute();
  const [id, item] = rest;
  useEffect(() => {
    const link = LINKS.find((each) => each.place === (place ?? "batches"));
    document.title = `${link?.label ?? "imgbatch"} · imgbatch`;
  }, [place]);
  const shown = `${place} ${id}`;
  const before = useRef(shown);
  useEffect(() => {
    if (shown === before.current) return;
    before.current = shown;
    scrollTo(0, 0);
    // The link that led here has often been removed.
    if (document.activeElement === document.body) document.getElementById("main")?.focus();
  }, [shown]);
  switch (place) {
    case "new":
      return <NewBatchPage />;
    case "image":
      return <OneImagePage />;
    case "money":
      return <MoneyPage />;
    case "service":
      return <ServicePage />;
    default:
      return id === undefined ? (
        <BatchesPage />
      ) : (
        <BatchPage key={id} ids={batchIdsOf(id)} openKey={item ?? null} />
      );
  }
}

/** The ways to all pages: at the side, or below on a phone. */
function Navigation(props: { account: AccountObject | null; onSignOut: () => void; onHelp: () => void }) {
  const { account, onSignOut, onHelp } = props;
  const [place = "batches"] = useRoute();
  const balance = account && balanceOf(account);
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
        {balance !== null && (
          <a className="balance" href={hrefOf("money")}>
            <b>{usd(balance, "sum")}</b>
            <span>balance</span>
          </a>
        )}
        {account && isPlayOnly(account) && (
          <a className="balance" href={hrefOf("money")}>
            <span>{FREE_DRAWINGS}</span>
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

const KEY_HELP: KeyHelp = [
  ["j  k", "next and previous batch or image, also in the large view"],
  ["⏎", "open it"],
  ["←  →  ↑  ↓", "another image, from one that has the focus"],
  ["x  space", "select the image or batch"],
  ["c", "compare the selected batches"],
  ["/", "search"],
  ["esc", "close, clear, go back"],
  ["z", "full size and back, in the large view"],
  ["a  e", "again; edit and make, in the large view"],
  ["g b  g n  g i  g m", "batches, new batch, one image, money"],
  ["?", "this help"],
];

const root = createRoot(document.getElementById("root") as HTMLElement);

/**
 * Signs in with the one-time code of a link, and shows the page. The code is taken out of the address at once, so that no
 * history keeps it.
 */
async function start(): Promise<void> {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code !== undefined) history.replaceState(null, "", location.pathname + location.search);
  const signedIn = code === undefined ? Promise.resolve() : signIn(code);
  const problem = await signedIn.then(
    () => null,
    (error: Error) => error,
  );
  root.render(<App signInProblem={problem} />);
}

takeDrops();

// Before the pages: none of them takes the code for a place.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) void start();
});
void start();
