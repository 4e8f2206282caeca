// Patterns of addresses.
// The parts of a path that match a pattern such as /ui/runs/:id, decoded; null if it is another path.
export const matched = (pattern: string, path: string): Record<string, string> | null => {
  const wanted = pattern.split("/"),
    given = path.replace(/\/+$/, "").split("/");
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [i, part] of wanted.entries()) {
    const one = given[i] ?? "";
    if (!part.startsWith(":")) {
      if (part !== one) return null;
      continue;
    }
    try {
      found[part.slice(1)] = decodeURIComponent(one);
    } catch {
      return null;
    }
    if (!one) return null;
  }
  return found;
};
