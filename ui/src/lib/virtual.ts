// Which rows of a long list are in view, when the window scrolls and rows have one height.
import { useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";

export const useWindow = (
  ref: RefObject<HTMLElement | null>,
  count: number,
  height: number,
): { from: number; to: number } => {
  const [range, setRange] = useState({ from: 0, to: 60 });
  useEffect(() => {
    let planned = 0;
    const look = (): void => {
      planned = 0;
      const top = ref.current?.getBoundingClientRect().top ?? 0,
        over = 15;
      const from = Math.max(0, Math.floor(-top / height) - over),
        to = Math.min(count, Math.ceil((innerHeight - top) / height) + over);
      setRange((was) => (was.from === from && was.to === to ? was : { from, to }));
    };
    const plan = (): void => {
      planned ||= requestAnimationFrame(look);
    };
    look();
    addEventListener("scroll", plan, { passive: true });
    addEventListener("resize", plan);
    return () => {
      removeEventListener("scroll", plan);
      removeEventListener("resize", plan);
      cancelAnimationFrame(planned);
    };
  }, [count, height]);
  return {
    from: Math.min(range.from, count),
    to: Math.min(Math.max(range.to, Math.min(count, range.from + 1)), count),
  };
};
