import { useSearchKey } from "../hooks/use-search-key.ts";
import { Icon } from "./icons.tsx";

/** A field that narrows a list while it is typed into. `/` goes to it, Escape clears it. */
export function SearchField(props: { label: string; value: string; onChange: (value: string) => void }) {
  const { label, value, onChange } = props;
  const field = useSearchKey();
  return (
    <span className="search">
      <span className="search-icon">
        <Icon name="search" />
      </span>
      <input
        ref={field}
        type="search"
        aria-label={label}
        placeholder={`${label} ( / )`}
        value={value}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          onChange("");
          event.currentTarget.blur();
        }}
      />
    </span>
  );
}
