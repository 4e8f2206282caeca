// Starts and failures over time as bars; dragging chooses a stretch. Given data, no HTTP.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Pulse } from "../api/types.ts";
import { at, counted, roundTimes, tickTime, when } from "../lib/time.ts";

const TICKS_MAX = 8;

export const Bars = ({
  pulse,
  onPick,
  testid,
  now,
}: {
  pulse: Pulse;
  onPick?: (from: number, to: number) => void;
  testid: string;
  now: number;
}): JSX.Element => {
  const ref = useRef<SVGSVGElement>(null),
    [picked, setPicked] = useState<[number, number] | null>(null);
  const items = pulse.items,
    n = Math.max(1, items.length),
    most = Math.max(
      1,
      ...items.map((one) =>
        Math.max(one.started, one.completed + one.failed + one.cancelled + one.interrupted),
      ),
    );
  const W = 960,
    H = 46,
    w = W / n,
    y = (value: number): number => (value ? Math.max(1.5, (value / most) * (H - 6)) : 0);
  const indexAt = (event: PointerEvent): number => {
    const box = ref.current!.getBoundingClientRect();
    return Math.min(n - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * n)));
  };
  const from = at(pulse.from),
    to = at(pulse.to);
  const label = `${counted(pulse.total.started, "start")} and ${counted(pulse.total.failed, "failure")} from ${when(from, now)} to ${when(to, now)}`;
  return (
    <>
      <svg
        ref={ref}
        class="bars"
        viewBox={`0 0 ${W} ${H}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={label}
        data-testid={testid}
        onPointerDown={
          onPick &&
          ((event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            const i = indexAt(event);
            setPicked([i, i]);
          })
        }
        onPointerMove={
          onPick &&
          ((event) => {
            if (picked) setPicked([picked[0], indexAt(event)]);
          })
        }
        onPointerUp={
          onPick &&
          (() => {
            if (picked) {
              const [a, b] = [Math.min(...picked), Math.max(...picked)];
              onPick(at(items[a]!.at), at(items[b]!.at) + pulse.bucket_ms);
            }
            setPicked(null);
          })
        }
      >
        <path class="axis" d={`M0 ${H - 0.5}H${W}`} vector-effect="non-scaling-stroke" />
        {items.map((one, i) => {
          const failed = one.failed + one.interrupted,
            good = one.completed + one.cancelled,
            f = y(failed),
            g = y(good),
            s = y(one.started);
          return (
            <g key={one.at}>
              <title>{`${when(at(one.at), now)}: ${counted(one.started, "start")}, ${counted(good, "end")}, ${counted(failed, "failure")}`}</title>
              {s > 0 && <rect class="started" x={i * w + w * 0.1} y={H - 1 - s} width={w * 0.8} height={s} />}
              {g > 0 && <rect class="ended" x={i * w + w * 0.1} y={H - 1 - g} width={w * 0.8} height={g} />}
              {f > 0 && (
                <rect class="failures" x={i * w + w * 0.1} y={H - 1 - g - f} width={w * 0.8} height={f} />
              )}
              <rect x={i * w} y={0} width={w} height={H} fill="transparent" />
            </g>
          );
        })}
        {picked && (
          <rect
            class="pick"
            x={Math.min(...picked) * w}
            y={0}
            width={(Math.abs(picked[0] - picked[1]) + 1) * w}
            height={H}
          />
        )}
      </svg>
      <div class="bars-ticks" aria-hidden="true">
        {roundTimes(from, to, TICKS_MAX).map((t) => (
          <span
            key={t}
            style={{ insetInlineStart: `${(((t - from) / (to - from || 1)) * 100).toFixed(2)}%` }}
          >
            {tickTime(t)}
          </span>
        ))}
      </div>
    </>
  );
};
