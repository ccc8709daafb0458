"""One page per model, and a bound on how many."""

from headway.core.ids import ReplicaId
from headway.policies.books import MAX_MODELS, Books, gone
from tests.policies.fleet import view


def test_a_page_is_made_once() -> None:
    books: Books[list[int]] = Books(list)
    books.page("m").append(1)
    assert books.page("m") == [1]
    assert books.page("n") == []


def test_the_model_not_asked_for_longest_is_forgotten() -> None:
    books: Books[list[int]] = Books(list)
    for k in range(MAX_MODELS):
        books.page(f"m{k}").append(k)
    books.page("m0")
    books.page("another")
    assert len(books) == MAX_MODELS
    assert books.page("m0") == [0]
    assert books.page("m1") == []


def test_replicas_are_forgotten_only_once_they_are_many() -> None:
    here = [view("a"), view("b")]
    few = {ReplicaId(f"r{k}"): None for k in range(20)}
    assert gone(few, here) == []
    many = {ReplicaId(f"r{k}"): None for k in range(20)} | {ReplicaId("a"): None}
    assert gone(many, here) == [f"r{k}" for k in range(20)]
