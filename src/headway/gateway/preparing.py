"""What has to be asked before a run goes on elsewhere: the prompt as text, what ids spell, how text splits. Pure: gives
questions, wants answers, returns the body for the target and where the cut is.
"""

import msgspec

from headway.engines.continuation import Continuation, Given, KvPull, Way, Words
from headway.gateway.errand import Steps
from headway.wire import resume_body
from headway.wire.body import Body
from headway.wire.resume import Tape
from headway.wire.resume_body import Ask, Stops, Unresumable
from headway.wire.resume_cut import Cut
from headway.wire.resume_splice import Manner
from headway.wire.spans import top_level


class Score(msgspec.Struct):
    """A run that can be continued, and what is known of it: `body` as its engine got it but for our own wishes, `ids`
    whether the client asked for token ids itself. Learned on the way: `prompt` as text where the way needs that,
    `prompt_tokens` in it."""

    path: str
    body: bytes
    parsed: Body
    continuation: Continuation
    way: Way
    stops: Stops
    ids: bool = False
    running_usage: bool = False
    prompt: str | list[int] | None = None
    prompt_tokens: int = 0

    def manner(self) -> Manner:
        """What the client is to see."""
        return self.continuation.manner(
            self.way, self.parsed, self.stops, running_usage=self.running_usage, ids=self.ids
        )


class Place(msgspec.Struct, frozen=True):
    """Where a run goes on: the replica's name for the model, its context, and what its body has to say besides."""

    model: str
    context_tokens: int = 0
    fields: dict[str, object] = {}


class Ready(msgspec.Struct, frozen=True):
    """What to send, and where the cut is."""

    ask: Ask
    cut: Cut


def wants_running_usage(body: bytes) -> bool:
    """Whether every event is to tell the usage."""
    spans = {key: body[start:end] for key, start, end in top_level(body)}
    try:
        options = msgspec.json.decode(spans.get("stream_options", b"null"), type=dict[str, object] | None)
    except msgspec.DecodeError:
        return False
    return options is not None and options.get("continuous_usage_stats") is True


def ready(score: Score, tape: Tape, place: Place) -> Steps[Ready]:
    """The cut at all that the client has, and the request to go on from there. The tape must not change meanwhile.

    Raises Unresumable, LimitReached and what `json` bodies may raise, all of them ValueErrors."""
    yield from _prompt(score, place)
    cut = yield from _cut(score, tape, place)
    said_ids: list[int] = []
    if isinstance(score.prompt, list):
        said_ids = yield from _split(score, cut.text, place)
    return Ready(score.continuation.ask(score.way, score.body, tape, cut, _given(score, place, said_ids)), cut)


def warm(score: Score, tape: Tape, place: Place) -> Steps[bytes]:
    """Have an engine read prompt and all that was said, for its prefix cache; what it says is of interest where it is
    asked for more (`Place.fields`)."""
    yield from _prompt(score, place)
    said_ids: list[int] = []
    text = tape.text
    if isinstance(score.prompt, list):
        said_ids = yield from _split(score, text, place)
    few: dict[str, object] = {"max_tokens": 1}
    if resume_body.has(score.body, "min_tokens"):
        few["min_tokens"] = 0
    cut = Cut(len(tape.ids) if score.way is Way.IDS else tape.generated, text)
    return (yield score.continuation.ask(score.way, score.body, tape, cut, _given(score, place, said_ids, few)))


def export(score: Score, tape: Tape, pull: KvPull) -> Steps[dict[str, object]]:
    """Have the source, which has computed all this, hand it over: what is to be said to whoever fetches it."""
    whole: dict[str, object] = {"stream": False, "stream_options": None, pull.field: pull.wanted}
    answer = yield from warm(score, tape, Place("", fields=whole))
    return {pull.field: pull.ticket(answer)}


def _given(score: Score, place: Place, said_ids: list[int], more: dict[str, object] | None = None) -> Given:
    fields: dict[str, object] = {**({"model": place.model} if place.model else {}), **place.fields, **(more or {})}
    prompt = score.prompt if score.prompt is not None else ""
    return Given(place.context_tokens, prompt=prompt, said_ids=said_ids, fields=fields)


def _prompt(score: Score, place: Place) -> Steps[None]:
    """What the engine makes of the client's prompt, where it has to be said again as text. Asked once."""
    if score.way is not Way.TEXT or score.prompt is not None:
        return
    own = resume_body.prompt_of(score.body)
    if own is None:
        own = _words(score.continuation.render).text((yield score.continuation.render_ask(score.body)))
    if isinstance(own, list):
        score.prompt_tokens = len(own)
    else:
        score.prompt_tokens = len((yield from _split(score, own, place)))
    score.prompt = own


def _cut(score: Score, tape: Tape, place: Place) -> Steps[Cut]:
    if score.way is Way.IDS:
        return (yield from _by_ids(score, tape, place))
    cut = tape.by_text(score.stops.again)
    if score.continuation.tokenise is None or score.parsed.media_tokens:
        return cut
    if isinstance(score.prompt, str):
        count = len((yield from _split(score, score.prompt + cut.text, place))) - score.prompt_tokens
    else:
        count = len((yield from _split(score, cut.text, place)))
    if tape.splits_otherwise(count, bool(score.stops.strings)):
        raise Unresumable("the text splits into fewer tokens than it was said in")
    return msgspec.structs.replace(cut, count=count)


def _by_ids(score: Score, tape: Tape, place: Place) -> Steps[Cut]:
    words = _words(score.continuation.detokenise)
    search = tape.search(score.stops.hold, score.stops.back, score.stops.lags)
    try:
        ids = next(search)
        while True:
            ids = search.send(words.text((yield words.ask(list(ids), place.model))))
    except StopIteration as found:
        cut: Cut = found.value
        return cut


def _split(score: Score, text: str, place: Place) -> Steps[list[int]]:
    words = _words(score.continuation.tokenise)
    return words.ids((yield words.ask(text, place.model)))


def _words(words: Words | None) -> Words:
    if words is None:
        raise Unresumable("the engine does not tell how text splits")
    return words
