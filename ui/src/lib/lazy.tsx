// Screens that are loaded when they are opened. A file that cannot be loaded shows a sentence.
import { h } from "preact";
import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

export const lazy = <P extends object>(
  load: () => Promise<ComponentType<P>>,
): ((props: P) => JSX.Element) => {
  let known: ComponentType<P> | null = null;
  return (props: P): JSX.Element => {
    const [shown, setShown] = useState<ComponentType<P> | null>(() => known),
      [problem, setProblem] = useState(false),
      [turn, setTurn] = useState(0);
    useEffect(() => {
      if (known) return;
      let isOver = false;
      load().then(
        (found) => {
          known = found;
          if (!isOver) setShown(() => found);
        },
        () => {
          if (!isOver) setProblem(true);
        },
      );
      return () => {
        isOver = true;
      };
    }, [turn]);
    if (shown) return h(shown, props);
    if (!problem)
      return (
        <div class="skeleton" aria-hidden="true">
          <span />
          <span />
          <span />
          <span />
        </div>
      );
    return (
      <div class="empty" role="alert" data-testid="not-loaded">
        <p>This screen could not be loaded: the server is away, or it has a newer page.</p>
        <p class="row">
          <button
            type="button"
            class="button"
            data-testid="load-again"
            onClick={() => {
              setProblem(false);
              setTurn(turn + 1);
            }}
          >
            Try again
          </button>
          <button type="button" class="button" data-testid="reload" onClick={() => location.reload()}>
            Load the page again
          </button>
        </p>
      </div>
    );
  };
};
