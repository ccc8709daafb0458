"""Finding out which engine listens at a URL, which models it serves and how large it is."""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
import structlog

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.base import Dialect, Facts
from headway.engines.cards import MODELS_PATH
from headway.observe.polling import ABSENT
from headway.runtime.http import Answer, Client, Failure

log = structlog.get_logger(__name__)

GENERIC = "openai"
TIMEOUT_S = 5.0


class Undetected(msgspec.Struct, frozen=True):
    """Why no engine was recognised, or which one was that does not say at the moment what it serves: what each path
    answered, and which dialect failed on that, for people."""

    url: str
    tried: dict[str, str]
    engines: tuple[str, ...]
    recognised: str = ""

    def __str__(self) -> str:
        asked = "; ".join(f"{path} gave {said}" for path, said in self.tried.items())
        if self.recognised:
            return f"{self.recognised} at {self.url} does not say what it serves: {asked}"
        return f"no engine recognised at {self.url} (looked for {', '.join(self.engines)}): {asked}"


async def detect(
    url: str,
    dialects: Iterable[Dialect],
    client: Client,
    *,
    replica_id: ReplicaId,
    key: str = "",
    timeout_s: float = TIMEOUT_S,
) -> ReplicaSpec | Undetected:
    """Ask every dialect's paths at once and let the dialects look at the answers, the generic one last.

    `url` has no trailing slash. The spec's model is the engine's own first name; it serves every name listed. Model
    cards that an engine has, but does not give at the moment, are to be asked for again: without them its names, its
    limits and its precision are not known.
    """
    ordered = sorted(dialects, key=lambda dialect: (dialect.name == GENERIC, dialect.name))
    paths = list(dict.fromkeys(path for dialect in ordered for path in dialect.detect_paths))
    headers = {"authorization": f"Bearer {key}"} if key else {}
    got = await asyncio.gather(*(client.fetch(url + path, timeout_s=timeout_s, headers=headers) for path in paths))
    bodies = {p: a.body for p, a in zip(paths, got, strict=True) if isinstance(a, Answer) and a.status == 200}
    absent = {p for p, a in zip(paths, got, strict=True) if isinstance(a, Answer) and a.status in ABSENT}
    tried = dict(zip(paths, map(_said, got), strict=True))
    broken: dict[str, str] = {}
    for dialect in ordered:
        try:
            facts = dialect.detect({path: bodies[path] for path in dialect.detect_paths if path in bodies})
        except Exception as error:  # noqa: BLE001 - a third party's dialect must not keep every replica away
            broken[f"dialect {dialect.name}"] = f"the error {error!r}"
            continue
        if facts is not None:
            for name, problem in broken.items():
                log.error("a dialect failed on what an engine says of itself", url=url, failed=name, problem=problem)
            if MODELS_PATH in dialect.detect_paths and MODELS_PATH not in bodies.keys() | absent:
                return Undetected(url, {MODELS_PATH: tried[MODELS_PATH]}, (dialect.name,), dialect.name)
            # a report that cannot be had or says nothing at the moment is not one that there is none of
            wanted = {poll.path for poll in dialect.polls if not poll.optional}
            return _spec(url, replica_id, facts, facts.metrics and not wanted <= absent)
    return Undetected(url, _shortened(tried) | broken, tuple(dialect.name for dialect in ordered))


def _spec(url: str, replica_id: ReplicaId, facts: Facts, metrics: bool) -> ReplicaSpec:
    return ReplicaSpec(
        id=replica_id,
        url=url,
        engine=facts.engine,
        model=facts.models[0] if facts.models else "",
        precision=facts.precision,
        labels={"engine_version": facts.version} if facts.version else {},
        serves={name: name for name in facts.models},
        max_model_tokens=facts.max_model_tokens,
        kv_capacity_tokens=facts.kv_capacity_tokens,
        max_num_seqs=facts.max_num_seqs,
        metrics=metrics,
    )


def _said(answer: Answer | Failure) -> str:
    if isinstance(answer, Failure):
        return str(answer)
    return "an unknown answer" if answer.status == 200 else f"status {answer.status}"


def _shortened(tried: Mapping[str, str]) -> dict[str, str]:
    """One entry when every path failed alike (nobody listens), else all of them."""
    return {"every path": next(iter(tried.values()))} if len(set(tried.values())) == 1 else dict(tried)
