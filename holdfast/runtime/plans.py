"""Plans by version, compiled once: from a definition at hand, or from the text that is stored with the runs it made."""

from __future__ import annotations

from typing import Final

from holdfast.plan.compile import compile_workflow
from holdfast.plan.graph import Plan
from holdfast.spec.inputs import Inputs
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.base import Batch, Store, Version
from holdfast.values import Millis

SPECS_REMEMBERED_MAX: Final = 1_000


class Plans:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_version: dict[str, Plan] = {}
        self._by_spec: dict[
            int, tuple[WorkflowSpec, Plan, Inputs]
        ] = {}  # by identity; holding it keeps the id
        self._stored: set[str] = set()
        self._spec_of: dict[str, WorkflowSpec] = {}

    def of_spec(self, spec: WorkflowSpec) -> tuple[Plan, Inputs]:
        """The plan of a definition and what its runs may be given; refused with every problem if it is not valid."""
        known = self._by_spec.get(id(spec))
        if known is not None:
            return known[1:]
        spec.validate()
        compiled = compile_workflow(spec)
        plan = self._by_version.setdefault(compiled.version, compiled)
        if len(self._by_spec) >= SPECS_REMEMBERED_MAX:
            self._by_spec.clear()
        inputs = Inputs(spec.inputs)
        self._by_spec[id(spec)] = (spec, plan, inputs)
        return plan, inputs

    def spec_of(self, version: str, definition: str) -> WorkflowSpec:
        """A stored definition as a record; the same record each time, so that its plan is found by identity."""
        if version not in self._spec_of:
            if len(self._spec_of) >= SPECS_REMEMBERED_MAX:
                self._spec_of.clear()
            self._spec_of[version] = WorkflowSpec.from_yaml_str(definition)
        return self._spec_of[version]

    async def of_version(self, tenant: str, version: str) -> Plan:
        plan = self._by_version.get(version)
        if plan is None:
            text = await self._store.definition(tenant, version)
            assert text is not None, f"the definition {version} of a stored run is missing"
            plan = self._by_version[version] = compile_workflow(WorkflowSpec.from_yaml_str(text))
        return plan

    def store_with(self, batch: Batch, tenant: str, spec: WorkflowSpec, plan: Plan, now: Millis) -> None:
        """Let a batch write the definition too, unless it is known to be durable."""
        if plan.version in self._stored or any(version.hash == plan.version for version in batch.versions):
            return
        batch.versions.append(Version(tenant, plan.version, spec.name, spec.canonical().decode(), now))

    def is_durable(self, plan: Plan) -> None:
        self._stored.add(plan.version)
