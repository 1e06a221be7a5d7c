import { type ReactNode, useEffect, useState } from "react";
import {
  REVIEW_PATHS,
  type ReviewDecision,
  type ReviewLine,
  type ReviewPicture,
} from "../../../contract/review-api.ts";
import { announce, Icon } from "../../parts/notes.tsx";
import { pictures, RemotePicture } from "../../parts/pictures.tsx";
import { LargeFrame } from "../batch/large-view.tsx";
import { STATE_WORDS, shownImage, stateOf } from "./use-review.ts";

type Item = ReviewLine & { key: string };

/** A picture beside today's: an earlier version, or what it was made from. */
interface Beside {
  image: ReviewPicture;
  label: string;
  /** Of an earlier version, which can be chosen; null for a reference. */
  version: string | null;
}

/** The pictures of a line as large as the window allows, to decide on them. After a decision the next line is shown. */
export function ReviewView(props: {
  items: readonly Item[];
  item: Item;
  /** What the keys do with a line. True: the next one is shown. */
  acts: Readonly<Record<string, (item: Item) => boolean>>;
  isActive: boolean;
  onUndo: () => void;
  /** Chooses an earlier version. */
  onChoose: (version: string) => void;
  onHelp: () => void;
  onShow: (key: string) => void;
  onClose: () => void;
}) {
  const { items, item, acts, isActive, onUndo, onChoose, onHelp, onShow, onClose } = props;
  const index = items.findIndex(({ key }) => key === item.key);
  const [isFull, setFull] = useState(false);
  const besides = besidesOf(item);
  // What was made again is judged by what it was. Several images of today stand beside each other first.
  const [beside, setBeside] = useState(-1);
  const firstBeside = item.earlier.length > 0 && item.images.length === 1 ? 0 : -1;
  useEffect(() => {
    setBeside(firstBeside);
    setFull(false);
    void item.key;
  }, [item.key, firstBeside]);
  usePrefetch(items[index + 1]);

  const goOn = () => {
    const next = items[index + 1];
    if (next) onShow(next.key);
    else if (items.every((each) => each === item || stateOf(each) !== "undecided")) {
      announce("All is decided.", { isAlone: true });
      onClose();
    }
  };
  const act = (key: string) => () => {
    if (acts[key]?.(item)) goOn();
  };
  const chooseEarlier = () => {
    const version = besides[beside]?.version ?? null;
    if (version === null) return;
    onChoose(version);
    goOn();
  };
  const showBeside = () => {
    if (besides.length === 0)
      announce("There is no earlier version of it, and no reference.", { isAlone: true });
    else setBeside(beside + 1 >= besides.length ? -1 : beside + 1);
  };
  const keys = {
    ...Object.fromEntries(Object.keys(acts).map((key) => [key, act(key)])),
    u: onUndo,
    z: () => setFull(!isFull),
    b: showBeside,
    "0": chooseEarlier,
    "?": onHelp,
  };
  return (
    <LargeFrame
      label={`Picture ${item.id}`}
      index={index}
      total={items.length}
      onStep={(to) => items[to] && onShow(items[to].key)}
      keys={keys}
      isActive={isActive}
      onClose={onClose}
      stage={
        <ReviewStage
          item={item}
          beside={besides[beside] ?? null}
          isFull={isFull}
          onZoom={() => setFull(!isFull)}
          onChoose={(number) => act(String(number))()}
          onChooseEarlier={chooseEarlier}
        />
      }
      panel={
        <>
          <ReviewFacts item={item} act={act} onUndo={onUndo} />
          <Besides besides={besides} shown={beside} onShow={setBeside} />
          <dl className="facts column">
            {item.facts.map(([name, text]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd dir="auto">{text}</dd>
              </div>
            ))}
          </dl>
        </>
      }
    />
  );
}

function besidesOf({ earlier, references }: ReviewLine): Beside[] {
  return [
    ...earlier.map((image, index) => ({
      image,
      label: [index === 0 ? "before" : `${index + 1} before`, image.words].filter(Boolean).join(": "),
      version: image.version,
    })),
    ...references.map((image, index) => ({
      image,
      label: references.length === 1 ? "reference" : `reference ${index + 1}`,
      version: null,
    })),
  ];
}

/** Fetches the pictures that are shown next, so that a decision does not wait for them. */
function usePrefetch(next: ReviewLine | undefined): void {
  const paths = (next?.images ?? []).map(({ sha256 }) => REVIEW_PATHS.image(sha256)).join(" ");
  useEffect(() => {
    const stops = paths
      .split(" ")
      .filter((path) => path !== "")
      .map((path) => pictures.hold(path, null, () => {}));
    return () => {
      for (const stop of stops) stop();
    };
  }, [paths]);
}

function ReviewStage(props: {
  item: Item;
  beside: Beside | null;
  isFull: boolean;
  onZoom: () => void;
  onChoose: (number: number) => void;
  onChooseEarlier: () => void;
}) {
  const { item, beside, isFull, onZoom, onChoose, onChooseEarlier } = props;
  const { images, prompt, decision, error } = item;
  const shown = shownImage(item);
  if (shown === null)
    return (
      <div className="stage message">
        <p dir="auto">{error?.message ?? "There is no picture of it yet."}</p>
      </div>
    );
  const isSeveral = images.length > 1 && beside === null && !isFull;
  const today = images.find(({ version }) => version === decision?.chosen) ?? images[0];
  const panes = isSeveral || today === undefined ? images : [today];
  const total = panes.length + (beside && !isFull ? 1 : 0);
  return (
    <div
      className={`stage panes of-${Math.min(total, 9)} ${beside ? "compared" : ""} ${isFull ? "full" : ""}`}
    >
      {beside && !isFull && (
        <Pane
          caption={beside.label}
          isChosen={beside.version !== null && decision?.chosen === beside.version}
          choice={
            beside.version !== null && (
              <button
                type="button"
                className="button choose"
                aria-pressed={decision?.chosen === beside.version}
                onClick={onChooseEarlier}
              >
                <kbd>0</kbd> {decision?.chosen === beside.version ? "chosen" : "choose"}
              </button>
            )
          }
        >
          <span className="zoom">
            <RemotePicture
              path={REVIEW_PATHS.image(beside.image.sha256)}
              alt={beside.label}
              size={sizeOf(beside.image)}
            />
          </span>
        </Pane>
      )}
      {panes.map((image) => (
        <Pane
          key={`${image.number} ${image.sha256}`}
          caption={isSeveral ? null : beside && !isFull ? "today" : ""}
          isChosen={isSeveral && decision?.chosen === image.version}
          choice={
            isSeveral && (
              <button
                type="button"
                className="button choose"
                aria-pressed={decision?.chosen === image.version}
                onClick={() => onChoose(image.number)}
              >
                <kbd>{image.number}</kbd> {decision?.chosen === image.version ? "chosen" : "choose"}
              </button>
            )
          }
        >
          <button
            type="button"
            className="zoom"
            aria-label={isFull ? "Fit the window" : isSeveral ? `Choose image ${image.number}` : "Full size"}
            onClick={isSeveral ? () => onChoose(image.number) : onZoom}
          >
            <RemotePicture
              path={REVIEW_PATHS.image(image.sha256)}
              alt={isSeveral ? `image ${image.number}: ${prompt}` : prompt}
              size={sizeOf(image)}
            />
          </button>
        </Pane>
      ))}
    </div>
  );
}

function Pane(props: {
  caption: string | null;
  isChosen?: boolean;
  choice?: ReactNode;
  children: ReactNode;
}) {
  const { caption, isChosen = false, choice = null, children } = props;
  return (
    <figure className={`pane ${isChosen ? "chosen" : ""}`}>
      {children}
      {(choice || caption) && (
        <div className="pane-foot">
          {choice}
          {caption && <figcaption dir="auto">{caption}</figcaption>}
        </div>
      )}
    </figure>
  );
}

/** What a line asked for, what was decided, and the buttons that decide. */
function ReviewFacts({
  item,
  act,
  onUndo,
}: {
  item: Item;
  act: (key: string) => () => void;
  onUndo: () => void;
}) {
  const { id, prompt, decision, error, notes, odd, images } = item;
  const decides = [
    { key: "k", icon: "check", word: "Keep", verdict: "keep" },
    { key: "x", icon: "retry", word: "Again", verdict: "again" },
    { key: "d", icon: "close", word: "Drop", verdict: "drop" },
  ] as const;
  return (
    <>
      <div className="decide">
        {decides.map(({ key, icon, word, verdict }) => (
          <button
            key={key}
            type="button"
            className={`button ${STATE_WORDS[verdict]}`}
            disabled={images.length === 0}
            aria-pressed={decision?.verdict === verdict}
            aria-keyshortcuts={key}
            onClick={act(key)}
          >
            <Icon name={icon} /> {word} <kbd>{key}</kbd>
          </button>
        ))}
        <button
          type="button"
          className="button plain words-button"
          disabled={images.length === 0}
          aria-keyshortcuts="e"
          onClick={act("e")}
        >
          <Icon name="edit" /> What should change? <kbd>e</kbd>
        </button>
        <button type="button" className="button plain" aria-keyshortcuts="u" onClick={onUndo}>
          Undo <kbd>u</kbd>
        </button>
      </div>
      <h2 dir="auto">{id}</h2>
      {decision ? <VerdictMark decision={decision} /> : <span className="quiet">undecided</span>}
      {decision && decision.words !== "" && (
        <p className="said-words" dir="auto">
          {decision.words}
        </p>
      )}
      <p className="panel-prompt" dir="auto">
        {prompt}
      </p>
      {error && (
        <p className="note bad">
          <span>
            {error.message} <code className="code">{error.code}</code>
          </span>
        </p>
      )}
      {odd.length > 0 && <p className="note warn">looks odd: {odd.join("; ")}</p>}
      {notes.map((note) => (
        <p key={note} className="note warn">
          {note}
        </p>
      ))}
    </>
  );
}

/** Earlier versions and references, of which one can be shown beside today's picture. */
function Besides(props: { besides: readonly Beside[]; shown: number; onShow: (index: number) => void }) {
  const { besides, shown, onShow } = props;
  if (besides.length === 0) return null;
  return (
    <section className="panel-references" aria-label="To compare with">
      <h3>
        To compare with <kbd>b</kbd>
      </h3>
      <div className="reference-row">
        {besides.map(({ image, label }, index) => (
          <button
            key={`${label} ${image.sha256}`}
            type="button"
            className="beside"
            aria-pressed={index === shown}
            title={label}
            onClick={() => onShow(index === shown ? -1 : index)}
          >
            <RemotePicture path={smallPath(image.sha256, 256)} alt="" size={sizeOf(image)} />
            <span dir="auto">{label}</span>
          </button>
        ))}
      </div>
    </section>
  );
}

export function smallPath(sha256: string, width: 256 | 1024): string {
  return `${REVIEW_PATHS.image(sha256)}?width=${width}`;
}

export function sizeOf({ width, height }: { width: number | null; height: number | null }) {
  return width === null || height === null ? undefined : { width, height };
}

/** A verdict as a word with its sign: colour alone says nothing to some. */
export function VerdictMark({ decision }: { decision: ReviewDecision }) {
  const { verdict } = decision;
  const icons = { keep: "check", again: "retry", drop: "close" } as const;
  return (
    <b className={`verdict ${STATE_WORDS[verdict]}`}>
      <Icon name={icons[verdict]} /> {STATE_WORDS[verdict]}
    </b>
  );
}
