"""The words of the cuts."""

from __future__ import annotations

from typing import Any

import pytest

from recsys.config.cuts import resolve_cuts
from recsys.errors import ConfigError
from recsys.models.recommender import build_graph

ABC = ("a", "b", "c")


def model(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "archs": {key: {} for key in ABC},
        "detach": [],
        "local_losses": "detached",
        "embedding_grad_from": "undetached",
        "skip_tokens": False,
        "loss_weights": {},
    }
    return plain | changes


@pytest.mark.parametrize(
    ("detach", "expected"), [([], ""), ("all", "abc"), (["b"], "b"), (["c", "a"], "ac"), ("b", "b"), (["a", "a"], "a")]
)
def test_detach(detach: object, expected: str) -> None:
    cuts = resolve_cuts(model(detach=detach))
    assert cuts.detach == set(expected)
    assert cuts.local_losses == set(expected), "by default the detached parts have local losses"


@pytest.mark.parametrize(
    ("local", "expected"), [("detached", "b"), ("all", "abc"), ([], ""), (["a"], "a"), (["b", "c"], "bc")]
)
def test_local_losses(local: object, expected: str) -> None:
    assert resolve_cuts(model(detach=["b"], local_losses=local)).local_losses == set(expected)


@pytest.mark.parametrize(
    ("grad", "skip", "expected"),
    [
        ("undetached", False, {"interaction", "a", "c"}),
        ("main", False, {"interaction"}),
        ("main", True, {"interaction", "over"}),
        ("all", False, {"interaction", "a", "b", "c"}),
        ("all", True, {"interaction", "over", "a", "b", "c"}),
        (["a"], False, {"a"}),
        ("interaction", False, {"interaction"}),
    ],
)
def test_embedding_grad_from(grad: object, skip: bool, expected: set[str]) -> None:
    cuts = resolve_cuts(model(detach=["b"], embedding_grad_from=grad, skip_tokens=skip))
    assert cuts.embedding_grad_from == expected


def test_words_follow_the_parts_that_are_there() -> None:
    cuts = resolve_cuts(model(archs={"a": {}, "a2": {}}, detach="all", embedding_grad_from="all"))
    assert cuts.detach == {"a", "a2"} and cuts.embedding_grad_from == {"interaction", "a", "a2"}


def test_loss_weights() -> None:
    assert resolve_cuts(model(loss_weights={"a": 2, "c": 0.5})).loss_weights == {"a": 2.0, "c": 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"archs": {"cross": {}}, "detach": ["crosss"]},
            r"model\.detach: there is no part 'crosss'; did you mean cross\?",
        ),
        ({"detach": "al"}, r"model\.detach: there is no part 'al'; did you mean all or a\? Valid: all, a, b, c"),
        ({"detach": None}, r"model\.detach=None: give one of all or a list such as \[a, b\]"),
        ({"detach": ["over"]}, r"model\.detach: there is no part 'over'"),
        ({"local_losses": ["d"]}, r"model\.local_losses: there is no part 'd'; Valid: all, detached, a, b, c"),
        ({"embedding_grad_from": "over"}, r"model\.embedding_grad_from: there is no part 'over'"),
        ({"loss_weights": {"d": 1.0}}, r"model\.loss_weights: there is no part 'd'; Valid: a, b, c"),
        ({"loss_weights": {"a": 0.0}}, r"model\.loss_weights\.a=0\.0: must be above 0"),
        ({"loss_weights": {"a": float("nan")}}, r"model\.loss_weights\.a=nan: must be above 0"),
    ],
)
def test_a_wrong_name_or_weight_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_cuts(model(**changes))


@pytest.mark.parametrize(
    ("archs", "changes", "message"),
    [
        (ABC, {"detach": ["b", "c"], "local_losses": ["b"]}, r"model\.detach: c would never be trained"),
        (ABC, {"embedding_grad_from": []}, r"model\.embedding_grad_from=\[\]: nothing would train the embeddings"),
        (("over",), {}, r"model\.archs\.over: this name is a part of the main path"),
        (("keys",), {}, r"model\.archs\.keys: choose a key"),
        (("a.b",), {}, r"model\.archs\.a\.b: choose"),
    ],
)
def test_cuts_that_cannot_train_are_refused(archs: tuple[str, ...], changes: dict[str, Any], message: str) -> None:
    cuts = resolve_cuts(model(archs={key: {} for key in archs}, **changes))
    with pytest.raises(ConfigError, match=message):
        build_graph(archs, cuts, has_dense=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detach": ["all"]}, r"model\.detach=\[all\]: all is a word, not a part; write model\.detach=all"),
        ({"archs": {"all": None}}, r"model\.archs\.all: this name has a meaning of its own"),
        ({"loss_weights": {"cross": float("inf")}}, r"model\.loss_weights\.cross=inf: must be above 0 and finite"),
    ],
)
def test_words_and_parts_are_told_apart(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_cuts(model(**({"archs": {"cross": {}}, "local_losses": "all"} | change)))
