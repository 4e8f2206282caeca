// How to start a worker for a service that no worker serves.
import type { JSX } from "preact";
import { get } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Page, ServiceLine } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { CopyLine, Dialog } from "./basic.tsx";

export const WorkerHelp = ({ service, onClose }: { service: string; onClose: () => void }): JSX.Element => {
  const known = useLoaded<Page<ServiceLine>>("services", (signal) =>
    get<Page<ServiceLine>>("/services", { limit: 500 }, signal),
  );
  const command =
    known.data?.items.find((one) => one.name === service)?.start_one ||
    `holdfast worker module:function --server ${serverAddress()}`;
  return (
    <Dialog title={`Start a worker for ${service}`} testid="worker-help" onClose={onClose}>
      <p>
        A worker is a program that registers the service and is called, or fetches jobs. With the Python SDK:
      </p>
      <CopyLine testid="worker-help-copy" text={command} />
      <p class="dim small">
        docs/howto/write-a-worker.md shows the same for other languages.{" "}
        <a href="/ui/workers" data-testid="worker-help-all">
          All services and workers
        </a>
      </p>
    </Dialog>
  );
};
