// The editor: CodeMirror in a shadow root, where its styles are adopted sheets, so the page's policy needs no exception.
// Shares no module with the page. Completion comes from the JSON Schema of definitions and from names in the text.
import { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import {
  HighlightStyle,
  bracketMatching,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import type { Diagnostic } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

export type Found = { message: string; hint?: string; line?: number; column?: number; isNote: boolean };
export type Editor = {
  mark: (found: Found[]) => void;
  complete: (schemas: Record<string, unknown>[]) => void;
  goTo: (line: number, column: number) => void;
  replace: (text: string) => void;
  close: () => void;
};

const look = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--card)", fontSize: "13px", minHeight: "420px" },
  ".cm-content": { fontFamily: "var(--mono)", caretColor: "var(--ink)", padding: "8px 0" },
  ".cm-gutters": { backgroundColor: "var(--card)", color: "var(--dim)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&.cm-focused": { outline: "none" },
  "&.cm-focused .cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "var(--accent-soft)",
  },
  ".cm-tooltip": {
    backgroundColor: "var(--card)",
    border: "1px solid var(--line)",
    borderRadius: "6px",
    color: "var(--ink)",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": {
    backgroundColor: "var(--accent-soft)",
    color: "var(--ink)",
  },
  ".cm-diagnostic-error": { borderLeftColor: "var(--failed)" },
  ".cm-diagnostic-warning": { borderLeftColor: "var(--waiting)" },
  ".cm-lintRange-error": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--failed)",
    textUnderlineOffset: "3px",
  },
  ".cm-lintRange-warning": {
    backgroundImage: "none",
    textDecoration: "underline wavy var(--waiting)",
    textUnderlineOffset: "3px",
  },
});
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: tags.comment, color: "var(--dim)", fontStyle: "italic" },
  { tag: [tags.string, tags.content], color: "var(--ink)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--running)" },
  { tag: tags.keyword, color: "var(--retrying)" },
  { tag: [tags.separator, tags.punctuation], color: "var(--dim)" },
]);

// All keys of a schema with their descriptions, and all words that a value may be.
const wordsOf = (
  schemas: Record<string, unknown>[],
): { keys: Completion[]; values: Map<string, Completion[]> } => {
  const keys = new Map<string, Completion>(),
    values = new Map<string, Completion[]>(),
    seen = new Set<unknown>();
  const look = (node: unknown): void => {
    if (node === null || typeof node !== "object" || seen.has(node)) return;
    seen.add(node);
    const properties = (node as Record<string, unknown>)["properties"];
    if (properties && typeof properties === "object")
      for (const [key, one] of Object.entries(properties as Record<string, Record<string, unknown>>)) {
        const info = typeof one?.["description"] === "string" ? one["description"] : undefined;
        if (!keys.has(key)) keys.set(key, { label: key, apply: `${key}: `, type: "property", info });
        const words = one?.["enum"] ?? (one?.["const"] !== undefined ? [one["const"]] : undefined);
        if (Array.isArray(words)) {
          const has = values.get(key) ?? [];
          for (const word of words)
            if (!has.some((done) => done.label === String(word)))
              has.push({ label: String(word), type: "enum" });
          values.set(key, has);
        }
      }
    for (const one of Object.values(node)) look(one);
  };
  schemas.forEach(look);
  return { keys: [...keys.values()], values };
};

// What is typed is put into the text here: the browser's own way gives a new line the style of the one it replaces, as an inline
// style, which the page's policy refuses.
const typing = EditorView.domEventHandlers({
  beforeinput: (event, view) => {
    const text = event.data,
      { from, to } = view.state.selection.main;
    if (
      event.inputType !== "insertText" ||
      !text ||
      event.isComposing ||
      view.composing ||
      view.state.readOnly ||
      view.state.selection.ranges.length > 1
    )
      return false;
    const insert = () =>
      view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    if (!view.state.facet(EditorView.inputHandler).some((handler) => handler(view, from, to, text, insert)))
      view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

export const mount = (
  host: HTMLElement,
  text: string,
  onText: (text: string) => void,
  options: { label: string; isReadOnly: boolean },
): Editor => {
  const holder = document.createElement("hf-editor"),
    root = holder.attachShadow({ mode: "open" });
  host.append(holder);
  let words = wordsOf([]);
  const complete = (context: CompletionContext): CompletionResult | null => {
    const line = context.state.doc.lineAt(context.pos),
      before = line.text.slice(0, context.pos - line.from);
    // Inside {{ }}: what an expression can name.
    const expression = /\{\{\s*([\w.]*)$/.exec(before);
    if (expression) {
      const ids = [...context.state.doc.toString().matchAll(/^\s*-?\s*id:\s*["']?([\w-]+)/gm)].map(
        (match) => match[1]!,
      );
      return {
        from: context.pos - expression[1]!.length,
        options: [...new Set(ids)]
          .map((label) => ({ label, type: "variable" }))
          .concat([
            { label: "inputs.", type: "namespace" },
            { label: "secrets.", type: "namespace" },
            { label: "run.id", type: "variable" },
          ]),
      };
    }
    const value = /^\s*-?\s*([\w-]+):\s*([\w-]*)$/.exec(before);
    if (value) {
      const known = words.values.get(value[1]!);
      return known ? { from: context.pos - value[2]!.length, options: known } : null;
    }
    const key = /^\s*(?:-\s+)?([\w-]*)$/.exec(before);
    if (key && (key[1] || context.explicit))
      return { from: context.pos - key[1]!.length, options: words.keys };
    return null;
  };
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(),
        highlightActiveLine(),
        highlightActiveLineGutter(),
        drawSelection(),
        history(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        typing,
        indentUnit.of("  "),
        autocompletion({ override: [complete], icons: false }),
        yaml(),
        syntaxHighlighting(colours),
        look,
        EditorView.lineWrapping,
        EditorState.readOnly.of(options.isReadOnly),
        EditorView.contentAttributes.of({ "aria-label": options.label, "data-testid": "editor-text" }),
        // Escape and then Tab leaves the editor by keyboard.
        keymap.of([...completionKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) onText(update.state.doc.toString());
        }),
      ],
    }),
  });
  const placeOf = (line: number, column: number): number => {
    const found = view.state.doc.line(Math.min(Math.max(1, line), view.state.doc.lines));
    return Math.min(found.to, found.from + Math.max(0, column - 1));
  };
  return {
    mark: (found) => {
      const diagnostics: Diagnostic[] = found
        .filter((one) => one.line)
        .map((one) => {
          const from = placeOf(one.line!, one.column ?? 1),
            line = view.state.doc.lineAt(from),
            rest = /^[^\s:,\]}]+/.exec(line.text.slice(from - line.from));
          return {
            from,
            to: Math.max(from + (rest?.[0].length ?? 0), Math.min(line.to, from + 1)),
            severity: one.isNote ? "warning" : "error",
            message: one.hint ? `${one.message}: ${one.hint}` : one.message,
          };
        });
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
    complete: (schemas) => {
      words = wordsOf(schemas);
    },
    goTo: (line, column) => {
      const at = placeOf(line, column);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
      view.focus();
    },
    replace: (next) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: next } }),
    close: () => {
      view.destroy();
      holder.remove();
    },
  };
};
