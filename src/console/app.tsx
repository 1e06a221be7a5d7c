import { useEffect, useRef, useState } from "react";
import { getAccount } from "./api/batches.ts";
import { followChanges } from "./api/changes.ts";
import { type StoredSession, signOut } from "./api/request.ts";
import { BatchPage } from "./pages/batch/batch-page.tsx";
import { BatchesPage } from "./pages/batches.tsx";
import { MoneyPage } from "./pages/money.tsx";
import { DraftProvider } from "./pages/new-batch/draft.tsx";
import { NewBatchPage } from "./pages/new-batch/new-batch-page.tsx";
import { OneImagePage, ShotsProvider } from "./pages/one-image.tsx";
import { ServicePage } from "./pages/service.tsx";
import { SignInPage } from "./pages/sign-in.tsx";
import { HelpDialog } from "./parts/dialog.tsx";
import { useKeys } from "./parts/keys.tsx";
import { go, hrefOf, Navigation, useRoute } from "./parts/navigation.tsx";
import { Announcer } from "./parts/notes.tsx";
import { pictures } from "./parts/pictures.tsx";
import { AccountContext, useData, useSession } from "./parts/use-data.ts";

/** The console: the sign-in page, or the pages of a key. */
export function App({ signInProblem }: { signInProblem: Error | null }) {
  const session = useSession();
  if (session === null)
    return (
      <>
        <SignInPage problem={signInProblem} />
        <Announcer />
      </>
    );
  return <SignedIn key={session.id} session={session} />;
}

const PLACES: Record<string, string> = { b: "batches", n: "new", i: "image", m: "money", s: "service" };
const LEADER_MS = 1500;

function SignedIn({ session }: { session: StoredSession }) {
  const [isHelping, setHelping] = useState(false);
  const account = useData("account", getAccount, (change) => change.kind === "account");
  useEffect(() => {
    const stop = new AbortController();
    followChanges(session, stop.signal);
    return () => {
      stop.abort();
      pictures.clear();
    };
  }, [session]);
  const [ledAtMs, setLedAtMs] = useState(0);
  const places = Object.entries(PLACES).map(([key, place]) => [
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
      {isHelping && <HelpDialog onClose={() => setHelping(false)} />}
      <Announcer />
    </AccountContext>
  );
}

function Page() {
  const [place, ...rest] = useRoute();
  const [id, item] = rest;
  useEffect(() => {
    document.title = `${TITLES[place ?? "batches"] ?? "imgbatch"} · imgbatch`;
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
      return id === undefined ? <BatchesPage /> : <BatchPage key={id} id={id} openItem={item ?? null} />;
  }
}

const TITLES: Record<string, string> = {
  batches: "Batches",
  new: "New batch",
  image: "One image",
  money: "Money",
  service: "Service",
};
