import { useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import type { ReviewDecision, ReviewLine, Verdict } from "../../../contract/review-api.ts";
import { counted } from "../../../kernel/text.ts";
import { copyText } from "../../api/files.ts";
import { hasSessionEnded } from "../../api/request.ts";
import { Dialog } from "../../parts/dialog.tsx";
import { HelpDialog, type KeyHelp, SearchField, useKeys } from "../../parts/keys.tsx";
import { Announcer, announce, EmptyNote, ErrorNote, Icon } from "../../parts/notes.tsx";
import { RemotePicture } from "../../parts/pictures.tsx";
import { go, hrefOf, useRoute } from "../../parts/route.ts";
import { count, Progress } from "../../parts/status.tsx";
import { Gallery, type TileView } from "../batch/gallery.tsx";
import { ReviewView, sizeOf, smallPath, VerdictMark } from "./review-view.tsx";
import { STATE_WORDS, STATES, type State, shownImage, stateOf, useReview } from "./use-review.ts";

/** Whether this is the page of `imgbatch review`, not that of a service. */
export const isReview = location.pathname.endsWith("/review/");

const KEY_HELP: KeyHelp = [
  ["←  →  ↑  ↓", "another picture"],
  ["⏎  esc", "large, and back to all"],
  ["k", "keep it"],
  ["x", "make it again"],
  ["d", "drop it: it is not used"],
  ["e", "say what should change, and make it again"],
  ["1  …  9", "choose among the images of a prompt"],
  ["0", "choose the earlier version that is shown beside it"],
  ["u", "undo the last decision"],
  ["z", "full size and back, in the large view"],
  ["b", "an earlier version or a reference beside it, in the large view"],
  ["/", "search"],
  ["?", "this help"],
];

/** Says why the page of a review cannot be opened, and what does. */
export function UsedLinkPage({ problem }: { problem: Error | null }) {
  return (
    <main className="sign-in">
      <img className="logo" src="./icon.svg" alt="" />
      <h1>imgbatch review</h1>
      <ErrorNote error={problem} />
      {hasSessionEnded() && <p className="note warn">The command that showed this page has ended.</p>}
      <p>
        The link of <code>imgbatch review</code> works once, and as long as the command runs. Run the command
        again for a new one. What was decided is kept in the directory of the run.
      </p>
    </main>
  );
}

type Item = ReviewLine & { key: string };

/** Which lines are shown: those of a state, or those whose pictures look odd. */
type Kind = State | "all" | "odd";

/** One decision follows the other quickly: only the last one is of interest. */
const say = (text: string) => announce(text, { isAlone: true });

/** Few pictures may be large: how wide a tile is at least, in pixels. */
function leastTile(count: number): number {
  if (count <= 12) return 420;
  return count <= 60 ? 300 : 216;
}

/** The pictures of a run, on which a person decides one by one. */
export function ReviewPage() {
  const { review, error, decide, undo } = useReview();
  const [place] = useRoute();
  const [kind, setKind] = useState<Kind>("all");
  const [words, setWords] = useState("");
  const [told, setTold] = useState<Item | null>(null);
  const [isHelping, setHelping] = useState(false);
  const sought = useDeferredValue(words.trim().toLowerCase());
  const items = useMemo(() => (review?.lines ?? []).map((line) => ({ ...line, key: line.id })), [review]);
  const listed = useMemo(() => items.filter((item) => isSought(item, kind, sought)), [items, kind, sought]);
  const open = items.find(({ key }) => key === place) ?? null;
  const show = (key: string | null) => go(key === null ? hrefOf() : hrefOf(key), { replace: true });

  // A review begins where it was left.
  const hasBegun = useRef(false);
  useEffect(() => {
    if (review === null || hasBegun.current) return;
    hasBegun.current = true;
    document.title = `${review.title} · imgbatch review`;
    const first = items.find((item) => stateOf(item) === "undecided");
    if (place === undefined && first) go(hrefOf(first.key), { replace: true });
  }, [review, items, place]);

  /** Decides. Returns whether there was anything to decide on. */
  const give = (item: Item, decision: ReviewDecision): boolean => {
    if (item.images.length === 0) {
      say("There is no picture to decide on.");
      return false;
    }
    decide(item, decision);
    say(`${item.id}: ${saidOf(item, decision)}`);
    return true;
  };
  const takeBack = async () => {
    // The page shows why it failed.
    const id = await undo().catch(() => undefined);
    if (id === undefined) return;
    say(id === null ? "There is nothing to undo." : `${id}: taken back`);
    if (id !== null && open !== null) show(id);
  };
  const judge = (verdict: Verdict) => (item: Item) => give(item, verdictOn(item, verdict));
  const choose = (number: number) => (item: Item) => {
    const image = item.images.find((each) => each.number === number);
    if (item.images.length < 2 || image === undefined) return false;
    return give(item, { verdict: "keep", chosen: image.version, words: "" });
  };
  const acts = {
    k: judge("keep"),
    x: judge("again"),
    d: judge("drop"),
    e: (item: Item) => {
      if (item.images.length > 0) setTold(item);
      return false;
    },
    ...Object.fromEntries([1, 2, 3, 4, 5, 6, 7, 8, 9].map((number) => [String(number), choose(number)])),
  };
  useKeys({ u: takeBack, "?": () => setHelping(true) });

  if (review === null)
    return (
      <main id="main" className="page review" tabIndex={-1}>
        <ErrorNote error={error} />
        <Announcer />
      </main>
    );
  const inView = open !== null && listed.includes(open) ? listed : items;
  return (
    <>
      <main id="main" className="page review" tabIndex={-1}>
        <ReviewHead title={review.title} retry={review.retry} items={items} onHelp={() => setHelping(true)} />
        <ErrorNote error={error} />
        <div className="tools">
          <KindTabs items={items} kind={kind} onKind={setKind} />
          <SearchField label="Search prompts" value={words} onChange={setWords} />
        </div>
        <Gallery
          places={listed}
          describe={describeLine}
          columns={null}
          leastTile={leastTile(listed.length)}
          openItem={open?.key ?? null}
          acts={acts}
          onOpen={show}
        />
        {listed.length === 0 && (
          <EmptyNote
            icon={kind === "undecided" && sought === "" ? "check" : "search"}
            title={kind === "undecided" && sought === "" ? "All is decided" : "No picture like this"}
          />
        )}
      </main>
      {open && (
        <ReviewView
          items={inView}
          item={open}
          acts={acts}
          isActive={told === null && !isHelping}
          onUndo={takeBack}
          onChoose={(version) => give(open, { verdict: "keep", chosen: version, words: "" })}
          onHelp={() => setHelping(true)}
          onShow={show}
          onClose={() => show(null)}
        />
      )}
      {told && (
        <WordsDialog
          item={told}
          onSay={(said) => give(told, { verdict: "again", chosen: null, words: said })}
          onClose={() => setTold(null)}
        />
      )}
      {isHelping && <HelpDialog keys={KEY_HELP} onClose={() => setHelping(false)} />}
      <Announcer />
    </>
  );
}

/** The same verdict twice keeps the words that were said. */
function verdictOn({ decision }: ReviewLine, verdict: Verdict): ReviewDecision {
  return { verdict, chosen: null, words: decision?.verdict === verdict ? decision.words : "" };
}

function saidOf({ images }: ReviewLine, { verdict, chosen, words }: ReviewDecision): string {
  const image = images.find(({ version }) => version === chosen);
  if (chosen !== null) return image ? `image ${image.number} chosen` : "the earlier version chosen";
  return words === "" ? STATE_WORDS[verdict] : `${STATE_WORDS[verdict]}, ${words}`;
}

/** What the run is, how far its review has come, and what to do next. */
function ReviewHead(props: { title: string; retry: string; items: readonly Item[]; onHelp: () => void }) {
  const { title, retry, items, onHelp } = props;
  const counts = countStates(items);
  const all = items.length - counts.failed;
  const decided = all - counts.undecided;
  return (
    <section className="review-head" aria-label="Review">
      <div className="page-head">
        <h1 dir="auto">{title}</h1>
        <button type="button" className="button plain" onClick={onHelp} title="Shortcuts (?)">
          <Icon name="help" />
          <span>Shortcuts</span>
        </button>
      </div>
      <div className="batch-line" role="status">
        <span className="counts">
          {count(decided)} <span className="of">of {count(all)} decided</span>
        </span>
        <Progress
          label="decided"
          total={all}
          parts={{ made: counts.keep, again: counts.again, dropped: counts.drop }}
        />
      </div>
      {counts.again > 0 && (
        <div className="next-command">
          <span>{counted(counts.again, "picture")} to make again, when you have decided:</span>
          <code>{retry}</code>
          <button
            type="button"
            className="button plain"
            onClick={() =>
              copyText(retry).then(
                () => announce("The command is copied."),
                (error: Error) => announce(error.message),
              )
            }
          >
            <Icon name="copy" /> Copy
          </button>
        </div>
      )}
    </section>
  );
}

function countStates(items: readonly ReviewLine[]): Record<State, number> {
  const counts = { undecided: 0, keep: 0, again: 0, drop: 0, failed: 0 };
  for (const item of items) counts[stateOf(item)]++;
  return counts;
}

function KindTabs(props: { items: readonly Item[]; kind: Kind; onKind: (kind: Kind) => void }) {
  const { items, kind, onKind } = props;
  const odd = items.filter((item) => isOfKind(item, "odd")).length;
  const counts = { all: items.length, odd, ...countStates(items) };
  return (
    <fieldset className="tabs" aria-label="Show">
      {(["all", ...STATES, "odd"] as const)
        .filter((each) => (each !== "failed" && each !== "odd") || counts[each] > 0 || kind === each)
        .map((each) => (
          <button key={each} type="button" aria-pressed={kind === each} onClick={() => onKind(each)}>
            {each === "odd" ? "looks odd" : each === "all" ? "all" : STATE_WORDS[each]}{" "}
            <span className="of">{count(counts[each])}</span>
          </button>
        ))}
    </fieldset>
  );
}

function isOfKind(item: Item, kind: Kind): boolean {
  if (kind === "odd") return item.odd.length > 0;
  return kind === "all" || stateOf(item) === kind;
}

function isSought(item: Item, kind: Kind, sought: string): boolean {
  if (!isOfKind(item, kind)) return false;
  const { id, prompt, decision, error, odd } = item;
  const texts = [id, prompt, decision?.words, error?.code, error?.message, ...odd];
  return sought === "" || texts.some((text) => text?.toLowerCase().includes(sought));
}

function describeLine(item: Item, width: number): TileView {
  const { id, prompt, error, decision, images, odd } = item;
  const state = stateOf(item);
  const looks = odd.length === 0 ? "" : `looks odd: ${odd.join("; ")}`;
  const text = decision?.words || looks || prompt;
  return {
    className: `reviewed ${STATE_WORDS[state]}`,
    label: `${id}, ${STATE_WORDS[state]}: ${state === "failed" ? error?.message : text}`,
    picture: state === "failed" ? <Failure item={item} /> : <TilePicture item={item} width={width} />,
    name: images.length > 1 ? `${id} · ${images.length} images` : id,
    text: state === "failed" ? (error?.code ?? "") : text,
    prompt,
    isFailed: state === "failed",
  };
}

function Failure({ item }: { item: Item }) {
  return (
    <span className="tile-error">
      <Icon name="warning" />
      <span dir="auto">{item.error?.message}</span>
    </span>
  );
}

function TilePicture({ item, width }: { item: Item; width: number }) {
  const image = shownImage(item);
  const { decision } = item;
  if (image === null) return null;
  const edge = width * devicePixelRatio > 300 ? 1024 : 256;
  return (
    <>
      <RemotePicture path={smallPath(image.sha256, edge)} alt="" size={sizeOf(image)} />
      {decision && <VerdictMark decision={decision} />}
    </>
  );
}

/** Asks what should change. The picture is made again then. */
function WordsDialog(props: { item: Item; onSay: (words: string) => void; onClose: () => void }) {
  const { item, onSay, onClose } = props;
  const [words, setWords] = useState(item.decision?.words ?? "");
  const say = () => {
    onSay(words.trim());
    onClose();
  };
  return (
    <Dialog label={`What should change in ${item.id}?`} className="words" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          say();
        }}
      >
        <label className="field">
          <span>
            What should change in <b>{item.id}</b>?
          </span>
          <textarea
            rows={2}
            autoFocus
            maxLength={2000}
            value={words}
            onChange={(event) => setWords(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
              event.preventDefault();
              say();
            }}
          />
        </label>
        <div className="dialog-actions">
          <button type="button" className="button" onClick={onClose}>
            Back
          </button>
          <button type="submit" className="button primary">
            Make it again
          </button>
        </div>
      </form>
    </Dialog>
  );
}
