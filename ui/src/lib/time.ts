// Times and spans as people read them. The clock is the server's: that of a browser may be an hour off.
import { signal } from "@preact/signals";

export const now = signal(Date.now());
export const offset = signal(0); // what is added to this browser's clock

export const setServerTime = (text: string | null | undefined): void => {
  const at = text ? Date.parse(text) : NaN;
  // Less than two seconds is the way there and back, not a wrong clock.
  if (!Number.isNaN(at)) {
    const off = at - Date.now();
    offset.value = Math.abs(off) < 2000 ? 0 : off;
    now.value = Date.now() + offset.value;
  }
};

export const startClock = (): void => {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now() + offset.value;
  }, 1000);
};
export const nowExactly = (): number => Date.now() + offset.value;

export const at = (text: string | null | undefined): number => (text ? Date.parse(text) : NaN);

// 0.4 s, 4.1 s, 9 m, 2 h 5 m, 3 d
export const span = (ms: number): string => {
  if (!Number.isFinite(ms)) return "";
  const secs = Math.max(0, ms) / 1000;
  if (secs < 0.0995) return `${Math.max(0, Math.round(ms))} ms`;
  if (secs < 9.95) return `${secs.toFixed(1)} s`;
  if (secs < 99.5) return `${Math.round(secs)} s`;
  if (secs < 3600) {
    const m = Math.floor(secs / 60),
      s = Math.round(secs % 60);
    return m < 10 && s > 0 && s < 60 ? `${m} m ${s} s` : `${Math.round(secs / 60)} m`;
  }
  if (secs < 86400) {
    const h = Math.floor(secs / 3600),
      m = Math.floor((secs % 3600) / 60);
    return h < 10 && m ? `${h} h ${m} m` : `${h} h`;
  }
  const d = Math.floor(secs / 86400),
    h = Math.floor((secs % 86400) / 3600);
  return d < 10 && h ? `${d} d ${h} h` : `${d} d`;
};

// One unit: for relative times, which tick.
export const roughly = (ms: number): string => {
  const secs = Math.max(0, ms) / 1000;
  if (secs < 60) return `${Math.floor(secs)} s`;
  if (secs < 3600) return `${Math.floor(secs / 60)} m`;
  if (secs < 86400) return `${Math.floor(secs / 3600)} h`;
  return `${Math.floor(secs / 86400)} d`;
};

export const ago = (from: number, to: number): string =>
  to - from < 3000 ? "just now" : `${roughly(to - from)} ago`;

const two = (n: number): string => String(n).padStart(2, "0");
export const clock = (ms: number, secs = true): string => {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}${secs ? `:${two(d.getSeconds())}` : ""}`;
};
export const clockMs = (ms: number): string =>
  `${clock(ms)}.${String(new Date(ms).getMilliseconds()).padStart(3, "0")}`;
export const day = (ms: number): string => {
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
};
export const exact = (ms: number): string =>
  Number.isFinite(ms) ? `${day(ms)} ${clockMs(ms)} (${new Date(ms).toISOString()})` : "";

// 13:44, tomorrow 13:44, Mon 13:44, 2026-12-01 13:44; with the seconds of a time that has some, if they matter
export const when = (ms: number, today: number, withSecs = false): string => {
  const time = clock(ms, withSecs && ms % 60_000 >= 1000);
  const days = Math.round(
    (new Date(ms).setHours(0, 0, 0, 0) - new Date(today).setHours(0, 0, 0, 0)) / 86_400_000,
  );
  if (days === 0) return time;
  if (days === 1) return `tomorrow ${time}`;
  if (days === -1) return `yesterday ${time}`;
  if (Math.abs(days) < 7)
    return `${["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][new Date(ms).getDay()]} ${time}`;
  return `${day(ms)} ${time}`;
};

const MINUTE_STEPS = [5, 15, 30, 60, 180, 360, 720, 1440, 2880, 10_080, 20_160, 43_200, 129_600];
// Round times by the clock here, at most so many: also on days that are an hour longer or shorter.
export const roundTimes = (from: number, to: number, most: number): number[] => {
  const step = MINUTE_STEPS.find((one) => (to - from) / (one * 60_000) <= most);
  if (!step) return [];
  const d = new Date(from),
    found: number[] = [];
  for (let i = 0; ; i += 1) {
    const t = new Date(d.getFullYear(), d.getMonth(), d.getDate(), 0, i * step).getTime();
    if (t > to) return found;
    if (t >= from && t !== found.at(-1)) found.push(t);
  }
};
// 06:00, and at midnight Nov 19
export const tickTime = (ms: number): string => {
  const d = new Date(ms);
  return d.getHours() || d.getMinutes()
    ? clock(ms, false)
    : d.toLocaleDateString("en-US", { month: "short", day: "numeric" });
};

export const grouped = (n: number): string => n.toLocaleString("en-US");
export const counted = (n: number, one: string, many = `${one}s`): string =>
  `${grouped(n)} ${n === 1 ? one : many}`;
export const bytes = (n: number): string =>
  n < 1024
    ? `${n} B`
    : n < 1024 * 1024
      ? `${(n / 1024).toFixed(1)} KiB`
      : `${(n / 1024 / 1024).toFixed(1)} MiB`;
