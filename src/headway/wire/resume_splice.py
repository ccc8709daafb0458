"""One seamless stream: the events of a continuation, rewritten as if they came from the run the client began with.

What the client sees stays what it was: id, time, model, kind of object, order of keys; one role, one finish reason, one
usage whose numbers are those of a single run, one `[DONE]`. An event says the same as the continuation's, in the manner
of the last event the client got.

What lives here: events. What must not: connections, and when to cut over.
"""

from typing import Any, Final

import msgspec

from headway.wire.resume import Tape
from headway.wire.resume_cut import Cut
from headway.wire.resume_ids import Frames
from headway.wire.resume_joint import Joint

DONE: Final = b"data: [DONE]\n\n"
_OF_A_CHOICE: Final = ("stop_reason", "matched_stop")
"""What a choice says only when it ends, behind its finish reason."""
_OF_AN_END: Final = ("usage", "timings")
_OF_A_PROMPT: Final = ("prompt_token_ids", "prompt_text")
_OF_AN_EVENT: Final = frozenset({"choices", *_OF_AN_END, *_OF_A_PROMPT})

Event = dict[str, Any]


class Manner(msgspec.Struct, frozen=True):
    """What the client asked for and how its engine writes.

    `usage`, `running_usage`: it gets a usage at the end, or with every event. `ids`: it gets token ids.
    `bare_finish`: the last event of a chat has an empty delta when it says no text (llama.cpp); else a delta without
    text says "" (vLLM).
    """

    usage: bool = False
    running_usage: bool = False
    ids: bool = False
    bare_finish: bool = False
    stops: tuple[str, ...] = ()
    stop_shown: bool = False


class Splicer:
    """Feed it the bytes of the continuation's stream; it returns those for the client, and tells the tape.

    `finished`: the client has had its finish reason (the usage and `[DONE]` may be missing yet). `done`: it has had
    `[DONE]`. `failed`: one word if the continuation cannot be shown ("error", "abort", "differs", "unfinished",
    "unreadable"): from there on nothing is returned, and the client's stream is still whole, up to where it was.
    `cut_short`: a stop string across the cut ended the answer; `close` ends the stream, the engine need not go on.
    """

    def __init__(self, tape: Tape, cut: Cut, manner: Manner, prompt_tokens: int = 0) -> None:
        self.finished = self.done = self.cut_short = False
        self.failed = ""
        self._tape = tape
        self._manner = manner
        self._joint = Joint(cut, manner.stops, manner.stop_shown)
        self._frames = Frames()
        self._told = tape.ids[cut.count :] if manner.ids else []  # told already, and now generated again
        self._before = cut.count
        self._had = tape.generated
        self._prompt_tokens = prompt_tokens or tape.prompt_tokens
        self._came = 0  # tokens of the continuation so far
        self._style: Event = msgspec.json.decode(tape.sample) if tape.sample else {}
        self._last: Event = {}
        self._chat = _is_chat(self._style)
        tape.rewind(cut)

    def feed(self, data: bytes) -> bytes:
        """The next piece of the continuation's stream."""
        return b"".join([self._event(said) for said in self._frames.feed(data)])

    def end(self) -> bytes:
        """The continuation's stream ended."""
        return b"".join([self._event(said) for said in self._frames.end()])

    def close(self) -> bytes:
        """What ends the client's stream when nothing more is needed of the engine: usage, if asked for, `[DONE]`."""
        usage = b""
        if self._manner.usage and not self._tape.totalled:
            counts = {"prompt_tokens": self._prompt_tokens, "completion_tokens": len(self._tape.ids) or self._count()}
            usage = _written(self._headed({"choices": [], "usage": _totalled(counts)}))
        self.done = self._tape.done = True
        return usage + DONE

    def finish(self, reason: str) -> bytes:
        """End the client's stream without a continuation: its last token was the end, or the limit was reached."""
        shown: Event = (self._style.get("choices") or [{}])[0]
        choice: Event = {**dict.fromkeys(shown), "index": 0, "text": "", "finish_reason": reason}
        if "token_ids" in shown:  # as vLLM writes
            choice["stop_reason"] = None
        self.finished = True
        return _written(self._rewritten({"choices": [choice]}, "", [])) + self.close()

    def _event(self, data: bytes) -> bytes:
        if self.failed or self.done or self.cut_short:
            return b""
        if data == b"[DONE]":
            if not self.finished:  # whoever lets this pass shows half an answer as a whole one
                return self._fail("unfinished")
            self.done = self._tape.done = True
            return DONE
        try:
            event: Event = msgspec.json.decode(data)
            choices = event["choices"]
            if event.get("error"):
                return self._fail("error")
            if len(choices) > 1:
                return self._fail("unreadable")
            return self._said(event, choices[0]) if choices else self._usage_only(event)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return self._fail("unreadable")
        except (KeyError, TypeError, AttributeError):
            return self._fail("error")

    def _fail(self, word: str) -> bytes:
        self.failed = word
        return b""

    def _said(self, event: Event, choice: Event) -> bytes:
        finish = choice.get("finish_reason") or ""
        if finish == "abort":
            return self._fail("abort")
        text, speaks = _text_of(choice)
        ids = choice.get("token_ids") or []
        self._came += len(ids) or int(bool(text) or (speaks and not finish))
        behind = self._joint.behind
        ended_by = choice.get("stop_reason") if finish == "stop" else None
        piece = self._joint.feed(text, bool(finish), ended_by if isinstance(ended_by, str) else "")
        fresh = self._fresh(ids)
        if self._joint.broken or fresh is None:
            return self._fail("differs")
        if self._joint.stop:
            finish = choice["finish_reason"] = "stop"
            choice["stop_reason"] = self._joint.stop
            self.cut_short = True
        self._tape.say(piece, ids)
        if not (finish or piece or (speaks and not behind and self._count(event) > self._had)):
            return b""  # the role again, or tokens the client has been told of
        return self._written_choice(event, piece, fresh, finish)

    def _written_choice(self, event: Event, piece: str, fresh: list[int], finish: str) -> bytes:
        if not finish:
            return _written(self._rewritten(event, piece, fresh))
        self.finished = True
        self._tape.finish_reason = finish
        if self.cut_short:
            return _written(self._rewritten(event, piece, fresh)) + self.close()
        apart = self._chat and "text" in event["choices"][0] and not self._manner.running_usage
        usage = self._usage_only({**event, "choices": []}) if apart else b""
        if usage:  # llama.cpp's completions tell it with the finish reason, its chats by an event of its own
            event = {name: value for name, value in event.items() if name not in _OF_AN_END}
        return _written(self._rewritten(event, piece, fresh)) + usage

    def _fresh(self, ids: list[int]) -> list[int] | None:
        """Those of these ids that the client was not told before; None if they are not what it was told."""
        known = min(len(self._told), len(ids))
        if self._told[:known] != ids[:known]:
            return None
        del self._told[:known]
        return ids[known:]

    def _count(self, event: Event | None = None) -> int:
        """Tokens a single run would have generated by now, never less than was said before."""
        usage = (event or {}).get("usage") or {}
        came = usage.get("completion_tokens") or self._came
        return max(self._before + came, self._tape.reported)

    def _usage_only(self, event: Event) -> bytes:
        usage = event.get("usage")
        if not usage or not self._manner.usage:
            return b""
        self._tape.totalled = True
        return _written(self._headed({**event, "usage": self._summed(event)}))

    def _summed(self, event: Event) -> Event:
        """The usage as one run would have told it. What the continuation calls prompt is the prompt and what was
        generated before it."""
        usage = event["usage"]
        whole = int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)
        if self._tape.ids:
            completion = self._count(event)
        else:
            completion = whole - self._prompt_tokens if self._prompt_tokens else self._count(event)
        if self._manner.running_usage:
            completion = max(completion, self._tape.reported)
        prompt = self._prompt_tokens or whole - completion
        summed = usage | {"prompt_tokens": prompt, "completion_tokens": completion}
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and (details.get("cached_tokens") or 0) > prompt:
            summed["prompt_tokens_details"] = details | {"cached_tokens": prompt}
        self._tape.reported = max(self._tape.reported, completion)
        return _totalled(summed)

    def _rewritten(self, event: Event, piece: str, ids: list[int]) -> Event:
        choice = self._choice(event["choices"][0], piece, ids)
        made = {**event, "choices": [choice]}
        if event.get("usage"):
            if self._manner.running_usage or (self._manner.usage and not self._chat):
                made["usage"] = self._summed(event)
                self._tape.totalled |= bool(choice.get("finish_reason")) and not self._manner.running_usage
            else:
                del made["usage"]
        return self._headed(made)

    def _choice(self, choice: Event, piece: str, ids: list[int]) -> Event:
        """The continuation's choice in the manner of the client's stream."""
        given = dict(choice)
        given.pop("text", None)
        given.pop("delta", None)
        if "token_ids" in given:
            given["token_ids"] = ids if self._manner.ids else None
        if "prompt_token_ids" in given:
            given["prompt_token_ids"] = None
        shown = (self._style.get("choices") or [{}])[0]
        said: object = piece
        if self._chat:
            said = self._delta(choice.get("delta"), shown.get("delta") or {}, piece, bool(given.get("finish_reason")))
        return _ordered(given, shown, "delta" if self._chat else "text", said)

    def _delta(self, own: Event | None, shown: Event, piece: str, finish: bool) -> Event:
        """That of a chat keeps its keys; that of a completion gets those the client has seen."""
        if own is not None:
            kept = {name: value for name, value in own.items() if name != "role"}
            return {**kept, "content": piece} if piece or "content" in own else kept
        others = {name: None for name in shown if name not in ("role", "content")}
        return others if finish and not piece and self._manner.bare_finish else {**others, "content": piece}

    def _headed(self, event: Event) -> Event:
        """With the head of the client's stream. An event of the same kind keeps its order, another takes on that of the
        client's stream, and what only it has comes behind."""
        style = {name: value for name, value in self._style.items() if name not in _OF_AN_EVENT}
        own = {name: value for name, value in event.items() if name not in _OF_A_PROMPT}
        if own.get("object") == style.get("object"):
            return {name: style.get(name, value) for name, value in own.items()}
        shared = {name: style.get(name, own.get(name)) for name in self._style if name in style or name in own}
        return shared | {name: value for name, value in own.items() if name not in shared}


def _is_chat(event: Event) -> bool:
    choices = event.get("choices") or [{}]
    return "delta" in choices[0]


def _text_of(choice: Event) -> tuple[str, bool]:
    """`(text, whether the event speaks)`; an event that only names the role does not."""
    if "text" in choice:
        return choice["text"] or "", True
    delta = choice.get("delta") or {}
    return delta.get("content") or "", "role" not in delta or bool(delta.get("content"))


def _ordered(given: Event, shown: Event, key: str, said: object) -> Event:
    """The choice with the keys of the one shown before, in its order; what an end adds follows the finish reason."""
    finish = given.get("finish_reason")
    made: Event = {}
    for name in shown or given:
        if name == key:
            made[key] = said
        elif name in given and name not in _OF_A_CHOICE:
            made[name] = given[name]
        elif name in _OF_A_CHOICE and name in shown:
            made[name] = given.get(name)
        if name == "finish_reason" and finish:
            made |= {one: given[one] for one in _OF_A_CHOICE if one in given}
    if "token_ids" in given and "role" in (shown.get("delta") or ()):  # the opening event has none
        made["token_ids"] = given["token_ids"]
    return made if key in made else {**made, key: said}


def _totalled(usage: Event) -> Event:
    """The total follows from its parts, in the engine's order of keys."""
    total = usage["prompt_tokens"] + usage["completion_tokens"]
    if "total_tokens" in usage:
        return {**usage, "total_tokens": total}
    prompt = usage["prompt_tokens"]
    return {"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": usage["completion_tokens"]}


def _written(event: Event) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
