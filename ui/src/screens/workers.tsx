// Who works? Services with their workers and waiting jobs, workers, and engine processes.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { drop, e, get, may } from "../api/client.ts";
import { useLoaded } from "../api/live.ts";
import type { Node, Page, ServiceLine, Worker } from "../api/types.ts";
import { serverAddress } from "../lib/prefix.ts";
import { grouped } from "../lib/time.ts";
import { WorkerHelp } from "../parts/worker_help.tsx";
import { Ago, Button, CopyLine, Empty, Mark, Shown, say, sayError } from "../parts/basic.tsx";

export const Workers = (): JSX.Element => {
  const workers = useLoaded<Page<Worker>>(
    "workers",
    (signal) => get<Page<Worker>>("/workers", { limit: 500 }, signal),
    { pollMs: 5000 },
  );
  const nodes = useLoaded<Page<Node>>(
    "nodes",
    (signal) => get<Page<Node>>("/nodes", { limit: 100 }, signal),
    { pollMs: 10_000 },
  );
  const services = useLoaded<Page<ServiceLine>>(
    "services",
    (signal) => get<Page<ServiceLine>>("/services", { limit: 500 }, signal),
    { pollMs: 5000 },
  );
  const help = useSignal<string | null>(null);
  const remove = async (worker: Worker): Promise<void> => {
    try {
      await drop(`/workers/${e(worker.id)}`);
      say(`${worker.id} is off the list; it comes back if it registers again.`);
      workers.again();
    } catch (error) {
      sayError(error);
    }
  };
  return (
    <>
      <div class="head">
        <h1>Workers</h1>
      </div>
      <section aria-label="Services" style={{ marginBottom: "20px" }}>
        <div class="head">
          <h2>Services</h2>
        </div>
        <Shown of={services} lines={2} testid="services">
          {(page) =>
            page.items.length === 0 ? (
              <p class="dim">No worker serves anything, and no job waits for a service.</p>
            ) : (
              <div class="list-box">
                <table class="list">
                  <caption class="sr">Services</caption>
                  <thead>
                    <tr>
                      <th scope="col">Service</th>
                      <th scope="col" class="num">
                        Workers
                      </th>
                      <th scope="col" class="num">
                        Jobs waiting
                      </th>
                      <th scope="col">Oldest job</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.items.map((one) => (
                      <tr key={one.name} class={one.waiting > 0 && one.workers === 0 ? "is-failed" : ""}>
                        <td>
                          <span class="row" style={{ flexWrap: "nowrap" }}>
                            <Mark
                              state={one.workers > 0 ? "completed" : one.waiting > 0 ? "failed" : "pending"}
                            />
                            {one.name}
                          </span>
                        </td>
                        <td class="num">{grouped(one.workers)}</td>
                        <td class="num">{grouped(one.waiting)}</td>
                        <td>
                          <span class="row">
                            <Ago time={one.oldest_waiting_at} />
                            {one.waiting > 0 && one.workers === 0 && (
                              <Button
                                testid={`worker-how-${one.name}`}
                                onClick={() => {
                                  help.value = one.name;
                                }}
                              >
                                How to start a worker
                              </Button>
                            )}
                          </span>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Shown>
      </section>
      <section aria-label="Workers" style={{ marginBottom: "20px" }}>
        <div class="head">
          <h2>Workers</h2>
        </div>
        <Shown of={workers} lines={3} testid="workers">
          {(page) =>
            page.items.length === 0 ? (
              <Empty
                command={`holdfast worker module:function --server ${serverAddress()}`}
                testid="workers-empty"
              >
                No worker is registered. This starts one:
              </Empty>
            ) : (
              <div class="list-box">
                <table class="list">
                  <caption class="sr">Workers</caption>
                  <colgroup>
                    <col style={{ width: "28%" }} />
                    <col style={{ width: "100px" }} />
                    <col />
                    <col style={{ width: "70px" }} />
                    <col style={{ width: "100px" }} />
                    <col style={{ width: "130px" }} />
                  </colgroup>
                  <thead>
                    <tr>
                      <th scope="col">Worker</th>
                      <th scope="col">State</th>
                      <th scope="col">Services</th>
                      <th scope="col" class="num wide">
                        Load
                      </th>
                      <th scope="col" class="wide">
                        Heard of
                      </th>
                      <th scope="col">
                        <span class="sr">Acts</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.items.map((one) => (
                      <tr key={one.id} data-testid={`worker-${one.id}`}>
                        <td title={one.url}>
                          <b>{one.id}</b>{" "}
                          <span class="dim small">{one.type === "pull" ? "fetches jobs" : one.url}</span>
                        </td>
                        <td>
                          <span class={`pill s-${one.status === "online" ? "completed" : "failed"}`}>
                            {one.status}
                          </span>
                        </td>
                        <td title={one.services.join(", ")}>{one.services.join(", ")}</td>
                        <td class="num wide">{one.load}</td>
                        <td class="wide">
                          <Ago time={one.last_heartbeat} />
                        </td>
                        <td>
                          {may("worker") && (
                            <Button
                              kind="quiet"
                              testid={`worker-drop-${one.id}`}
                              onClick={() => void remove(one)}
                            >
                              Remove
                            </Button>
                          )}
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )
          }
        </Shown>
      </section>
      <section aria-label="Nodes">
        <div class="head">
          <h2>Nodes</h2>
          <span class="dim small">processes that drive runs</span>
        </div>
        <Shown of={nodes} lines={2} testid="nodes">
          {(page) => (
            <div class="list-box">
              <table class="list">
                <caption class="sr">Nodes</caption>
                <thead>
                  <tr>
                    <th scope="col">Node</th>
                    <th scope="col">State</th>
                    <th scope="col" class="wide">
                      Release
                    </th>
                    <th scope="col" class="num">
                      Runs in memory
                    </th>
                    <th scope="col" class="wide">
                      Process
                    </th>
                    <th scope="col">Since</th>
                  </tr>
                </thead>
                <tbody>
                  {page.items.map((one) => (
                    <tr key={`${one.name} ${one.epoch}`}>
                      <td title={one.address ?? ""}>{one.name}</td>
                      <td>
                        <span class={`pill s-${one.state === "ready" ? "completed" : "waiting"}`}>
                          {one.state}
                        </span>
                      </td>
                      <td class="wide">{one.release}</td>
                      <td class="num">{grouped(one.runs)}</td>
                      <td class="mono small wide">{one.pid}</td>
                      <td>{one.since ? <Ago time={one.since} /> : null}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Shown>
      </section>
      <p class="dim small" style={{ marginTop: "16px" }}>
        A worker that has not been heard of for a while is not given jobs.{" "}
        <CopyLine text={`holdfast nodes --server ${serverAddress()}`} testid="nodes-copy" />
      </p>
      {help.value && (
        <WorkerHelp
          service={help.value}
          onClose={() => {
            help.value = null;
          }}
        />
      )}
    </>
  );
};
