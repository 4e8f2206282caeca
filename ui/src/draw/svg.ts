// Making SVG and HTML elements from text nodes alone.
const SPACE = "http://www.w3.org/2000/svg";
export type Attributes = Record<string, string | number | null | undefined>;
export const set = <T extends Element>(element: T, attributes: Attributes): T => {
  for (const [name, value] of Object.entries(attributes))
    value === null || value === undefined
      ? element.removeAttribute(name)
      : element.setAttribute(name, String(value));
  return element;
};
export const svg = (name: string, attributes: Attributes = {}, text = ""): SVGElement => {
  const made = set(document.createElementNS(SPACE, name), attributes);
  if (text) made.append(text);
  return made;
};
export const html = (name: string, attributes: Attributes = {}, text = ""): HTMLElement => {
  const made = set(document.createElement(name), attributes);
  if (text) made.append(text);
  return made;
};

// The shape of each state, in a square of 14: never colour alone.
export const SHAPES: Record<string, string> = {
  pending: "M7 2.2a4.8 4.8 0 1 0 0 9.6a4.8 4.8 0 1 0 0 -9.6",
  none: "M7 2.2a4.8 4.8 0 1 0 0 9.6a4.8 4.8 0 1 0 0 -9.6",
  running: "M7 2.2a4.8 4.8 0 1 0 0 9.6a4.8 4.8 0 1 0 0 -9.6M7 2.2a4.8 4.8 0 0 1 0 9.6z",
  waiting: "M4.7 3v8M9.3 3v8",
  cancelling: "M7 2.2a4.8 4.8 0 1 0 0 9.6a4.8 4.8 0 1 0 0 -9.6M4 10l6 -6",
  completed: "M2.6 7.4l3 3.1L11.4 4",
  failed: "M3.4 3.4l7.2 7.2M10.6 3.4l-7.2 7.2",
  cancelled: "M3.2 10.8l7.6 -7.6",
  interrupted: "M2 7h3.4M8.6 7H12M6.2 3.6l-1 2M8.8 8.4l-1 2",
  retrying: "M11.4 7a4.4 4.4 0 1 1 -1.5 -3.3M10.6 1.4v2.6h-2.6",
  ready: "M7 5.4a1.6 1.6 0 1 0 0 3.2a1.6 1.6 0 1 0 0 -3.2",
};
export const shape = (state: string | null): SVGElement =>
  svg("path", { d: SHAPES[state ?? "none"] ?? SHAPES["none"]!, class: "mark" });
