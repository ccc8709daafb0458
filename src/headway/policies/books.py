"""What a policy remembers, apart for each model, and bounded: the model not asked for longest starts anew."""

from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

from headway.core.ids import ReplicaId
from headway.core.view import ReplicaView

MAX_MODELS = 1024

_Page = TypeVar("_Page")


class Books(Generic[_Page]):
    """One page per model, made by `blank` at first use."""

    def __init__(self, blank: Callable[[], _Page]) -> None:
        self._blank = blank
        self._pages: dict[str, _Page] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def page(self, model: str) -> _Page:
        """The page of a model."""
        page = self._pages.pop(model, None)
        if page is None:
            page = self._blank()
            if len(self._pages) >= MAX_MODELS:
                del self._pages[next(iter(self._pages))]
        self._pages[model] = page
        return page


def gone(known: Collection[ReplicaId], views: Sequence[ReplicaView]) -> list[ReplicaId]:
    """Replicas to forget: those without a view, once they are many. (A few may only be excluded for a moment.)"""
    if len(known) <= 2 * len(views) + 16:
        return []
    here = {view.id for view in views}
    return [replica for replica in known if replica not in here]
