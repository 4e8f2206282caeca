// A value as a tree: text nodes alone, opened on demand, arrays a hundred at a time.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Json } from "../api/types.ts";
import { bytes, grouped } from "../lib/time.ts";
import { safeHref } from "../lib/text.ts";

const PART = 100,
  TEXT_MAX = 2000;

const Text = ({ text }: { text: string }): JSX.Element => {
  const [isAll, setAll] = useState(false);
  const href = text.length < 2000 && /^https?:/i.test(text) ? safeHref(text) : null;
  const shown = isAll ? text : text.slice(0, TEXT_MAX);
  if (href)
    return (
      <a class="v-text" href={href} target="_blank" rel="noopener noreferrer">
        {text}
      </a>
    );
  return (
    <span class={text.includes("\n") ? "v-text v-block" : "v-text"}>
      {text.includes("\n") ? shown : JSON.stringify(shown)}
      {!isAll && text.length > TEXT_MAX && (
        <button type="button" class="link" onClick={() => setAll(true)}>
          … {grouped(text.length - TEXT_MAX)} more characters
        </button>
      )}
    </span>
  );
};

const isLeaf = (value: Json): boolean =>
  value === null || typeof value !== "object" || Object.keys(value).length === 0;

const Leaf = ({ value }: { value: Json }): JSX.Element => {
  if (typeof value === "string") return <Text text={value} />;
  if (value === null) return <span class="v-null">null</span>;
  if (typeof value === "object") return <span class="v-null">{Array.isArray(value) ? "[]" : "{}"}</span>;
  return <span class="v-number">{String(value)}</span>;
};

const special = (value: Json): JSX.Element | null => {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return null;
  if (typeof value["$secret"] === "string") return <span class="v-ref">secret {value["$secret"]}</span>;
  if (typeof value["$of"] === "string")
    return (
      <span class="v-ref">
        output of {value["$of"]}
        {value["at"] ? ` at ${String(value["at"])}` : ""}
      </span>
    );
  return null;
};

const Branch = ({ name, value, depth }: { name: string | null; value: Json; depth: number }): JSX.Element => {
  const known = special(value),
    entries = value !== null && typeof value === "object" && !known ? Object.entries(value) : [];
  const [isOpen, setOpen] = useState(depth < 2 && entries.length <= 50),
    [shown, setShown] = useState(PART);
  const label = name === null ? null : <span class="v-name">{name}</span>;
  if (known || isLeaf(value))
    return (
      <div class="v-row">
        {label}
        {known ?? <Leaf value={value} />}
      </div>
    );
  const summary = Array.isArray(value)
    ? `${grouped(entries.length)} ${entries.length === 1 ? "item" : "items"}`
    : `{ ${entries
        .slice(0, 4)
        .map(([key]) => key)
        .join(", ")}${entries.length > 4 ? ", …" : ""} }`;
  return (
    <div class="v-branch">
      <button type="button" class="v-open" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="v-arrow" aria-hidden="true">
          {isOpen ? "▾" : "▸"}
        </span>
        {label}
        <span class="dim">{summary}</span>
      </button>
      {isOpen && (
        <div class="v-in">
          {entries.slice(0, shown).map(([key, one]) => (
            <Branch key={key} name={key} value={one} depth={depth + 1} />
          ))}
          {entries.length > shown && (
            <button type="button" class="link" onClick={() => setShown(shown + PART)}>
              show {grouped(Math.min(PART, entries.length - shown))} more of {grouped(entries.length)}
            </button>
          )}
        </div>
      )}
    </div>
  );
};

export const Value = ({ value }: { value: Json }): JSX.Element => (
  <div class="value">
    <Branch name={null} value={value} depth={0} />
  </div>
);

// A value that the server sent only the beginning of.
export const HeadValue = ({
  text,
  size,
  onAll,
  testid,
}: {
  text: string;
  size: number | null;
  onAll: () => void;
  testid: string;
}): JSX.Element => (
  <div class="value">
    {text ? (
      <pre class="head" tabIndex={0}>
        {text}…
      </pre>
    ) : (
      <p class="dim" style={{ marginBottom: "8px" }}>
        It is gathered from the steps inside when it is read.
      </p>
    )}
    <button type="button" class="button" data-testid={testid} onClick={onAll}>
      Show all{size === null ? "" : ` ${bytes(size)}`}
    </button>
  </div>
);
