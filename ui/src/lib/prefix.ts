// The page may stand under a prefix, which a proxy takes off before the server sees it. Paths in the sources begin after it.

// This file is in PREFIX/ui/assets/HASH/NAME.
export const prefix = new URL("../../..", import.meta.url).pathname.replace(/\/$/, "");
// The server as commands name it.
export const serverAddress = (): string => location.origin + prefix;
