"""Prompts that are followed by quotations from them."""

from __future__ import annotations

from itertools import pairwise

from actors.training.chain_rows import TEMPLATE
from actors.training.prompts import Prompt
from actors.training.quoting import BEHIND, LEAST, MOST, TAIL, quotation, with_quotations


def prompt(i: int, length: int = 300) -> tuple[Prompt, tuple[int, ...]]:
    """Every token of a prompt's is another one, so that a place in it is known by its token."""
    return Prompt(f"{i:024x}", "rag", f"text {i}"), tuple(range(1000 * i, 1000 * i + length))


def test_what_is_quoted_are_stretches_of_the_text_in_its_order_and_no_template() -> None:
    for i in range(50):
        named, ids = quotation(*prompt(i), 100)
        _, text = prompt(i)
        assert ids[: len(text)] == text
        quoted = ids[len(text) :]
        assert LEAST <= len(quoted) == named.quoted <= 100
        assert min(quoted) >= text[TEMPLATE]
        assert max(quoted) < text[-TAIL]
        places = [j for j, (a, b) in enumerate(pairwise(quoted)) if b != a + 1]
        starts = [quoted[0], *(quoted[j + 1] for j in places)]
        assert starts == sorted(starts)


def test_a_stretch_is_no_longer_than_its_most_and_a_quotation_is_the_same_each_time() -> None:
    named, ids = quotation(*prompt(3), MOST)
    assert named.quoted <= MOST
    assert quotation(*prompt(3), MOST) == (named, ids)
    assert quotation(*prompt(3), MOST, seed=1)[1] != ids


def test_all_prompts_stay_and_the_share_of_the_long_ones_is_quoted_behind_them() -> None:
    given = [prompt(i, 300 if i % 2 else 40) for i in range(40)]
    found = list(with_quotations(given, 0.5, 60))
    assert [item for item in found if not item[0].quoted] == given
    quoted = [named.name.removesuffix("-quoted") for named, _ in found if named.quoted]
    assert len(quoted) == 10
    assert set(quoted) <= {named.name for named, ids in given if len(ids) == 300}
    order = [named.name for named, _ in found]
    for name in quoted[:-2]:
        assert order.index(f"{name}-quoted") - order.index(name) >= BEHIND


def test_without_a_share_nothing_is_added() -> None:
    given = [prompt(i) for i in range(9)]
    assert list(with_quotations(given, 0.0, 60)) == given
    assert len(list(with_quotations(given, 1.0, 60))) == 18
