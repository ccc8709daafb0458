"""An engine of two numbers for tests of observation, and everything an observer posts."""

from collections.abc import Mapping

import msgspec

from headway.core.events import ProbeFailed, ProbeSucceeded, SampleTaken
from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample, ReplicaSpec
from headway.engines import cards
from headway.engines.base import Dialect, Facts, Poll, Reading
from tests.runtime.servers import Reply

LOAD = "/load"
EXTRA = "/extra"
STAND_IN = "/stand-in"
MODELS = "/v1/models"


class Plain(Dialect):
    """Reads `{"running": n, "started": s, "generated": g}` from /load or its stand-in; /extra is optional."""

    name = "plain"
    polls = (Poll(LOAD), Poll(EXTRA, optional=True), Poll(STAND_IN, unless=LOAD))
    detect_paths = (LOAD, MODELS)
    heartbeat = b'"beat"'

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by its load."""
        if "running" not in cards.mapping(answers.get(LOAD)):
            return None
        return Facts("plain", "1.0", cards.names(cards.models(answers)), 100, 200, 3, "int8")

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        report = cards.mapping(answers.get(LOAD) or answers.get(STAND_IN))
        if report.get("raise"):
            raise RuntimeError("a third party's bug")
        sample = LoadSample(
            replica_id, taken_at, epoch, running=report.get("running"), generated_tokens_total=report.get("generated")
        )
        missing = () if "running" in report else ("running",)
        return Reading(sample, missing, report.get("started"), report.get("rejected"))


class Generic(Dialect):
    """Has cards, has no load report."""

    name = "openai"
    health_path = MODELS
    detect_paths = (MODELS,)

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by its cards."""
        models = cards.models(answers)
        return Facts("openai", models=cards.names(models), metrics=False) if models else None


DIALECTS: dict[str, Dialect] = {"plain": Plain(), "openai": Generic()}


class Log:
    """Keeps what was posted."""

    def __init__(self) -> None:
        self.events: list[SampleTaken | ProbeSucceeded | ProbeFailed] = []

    def post(self, event: SampleTaken | ProbeSucceeded | ProbeFailed) -> None:
        """Keep it."""
        self.events.append(event)

    @property
    def samples(self) -> list[LoadSample]:
        """The samples posted so far."""
        return [event.sample for event in self.events if isinstance(event, SampleTaken)]

    @property
    def probes(self) -> list[ProbeSucceeded | ProbeFailed]:
        """The probe results posted so far."""
        return [event for event in self.events if not isinstance(event, SampleTaken)]


def load(**report: object) -> Reply:
    """An answer of /load."""
    return Reply(msgspec.json.encode(report))


def models(*names: str) -> Reply:
    """An answer of /v1/models."""
    data = [{"id": name, "object": "model", "owned_by": "somebody", "odd": 1} for name in names]
    return Reply(msgspec.json.encode({"object": "list", "data": data}))


def engine(**report: object) -> dict[str, Reply]:
    """The replies of a healthy engine."""
    return {LOAD: load(**{"running": 1, **report}), "/health": Reply(), MODELS: models("m")}


def spec(url: str, name: str = "r", **more: object) -> ReplicaSpec:
    """A registration of a plain engine."""
    return ReplicaSpec(ReplicaId(name), url, "plain", "m", **more)  # type: ignore[arg-type]
