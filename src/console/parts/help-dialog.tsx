import { Dialog } from "./dialog.tsx";

const KEYS: readonly (readonly [keys: string, meaning: string])[] = [
  ["j  k", "next and previous batch or image, also in the large view"],
  ["⏎", "open it"],
  ["←  →  ↑  ↓", "another image, from one that has the focus"],
  ["x  space", "select the image"],
  ["/", "search"],
  ["esc", "close, clear, go back"],
  ["z", "full size and back, in the large view"],
  ["g b  g n  g i  g m", "batches, new batch, one image, money"],
  ["?", "this help"],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog label="Shortcuts" className="small" onClose={onClose}>
      <h2>Shortcuts</h2>
      <dl className="keys">
        {KEYS.map(([keys, meaning]) => (
          <div key={keys}>
            <dt>
              {keys.split(/ {2}/).map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div className="dialog-actions">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
