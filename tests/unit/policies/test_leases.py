from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import leases
from policies.leases import Lease


def make_lease(name: str = "d0", address: str = "127.0.0.1:1") -> Lease:
    return Lease(name=name, address=address, mechanism="suffix", pid=1, max_sessions=8)


def test_a_lease_lives_until_its_ttl_and_not_a_moment_longer() -> None:
    table, changed = leases.renew({}, make_lease(), now_s=10.0, ttl_s=3.0)
    assert changed
    assert leases.expire(table, now_s=12.999) == (table, False)
    assert leases.expire(table, now_s=13.0) == ({}, True)


def test_a_renewal_moves_the_end_and_changes_nothing_others_see() -> None:
    table, _ = leases.renew({}, make_lease(), now_s=0.0, ttl_s=3.0)
    table, changed = leases.renew(table, make_lease(), now_s=2.0, ttl_s=3.0)
    assert not changed
    assert table["d0"].expires_s == 5.0


@pytest.mark.parametrize("field", ["address", "mechanism", "pid", "max_sessions"])
def test_a_renewal_with_another_fact_is_a_change(field: str) -> None:
    table, _ = leases.renew({}, make_lease(), now_s=0.0, ttl_s=3.0)
    value: str | int = "other" if field in ("address", "mechanism") else 77
    _, changed = leases.renew(table, replace(make_lease(), **{field: value}), now_s=1.0, ttl_s=3.0)
    assert changed


def test_a_release_of_a_stranger_changes_nothing() -> None:
    table, _ = leases.renew({}, make_lease(), now_s=0.0, ttl_s=3.0)
    assert leases.release(table, "stranger") == (table, False)
    assert leases.release(table, "d0") == ({}, True)


def test_the_table_is_bounded_and_known_names_still_renew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_LEASES", 2)
    table: leases.Leases = {}
    for name in ("a", "b", "c"):
        table, _ = leases.renew(table, make_lease(name), now_s=0.0, ttl_s=3.0)
    assert set(table) == {"a", "b"}
    table, _ = leases.renew(table, make_lease("a"), now_s=9.0, ttl_s=3.0)
    assert table["a"].expires_s == 12.0


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["renew", "release", "wait"])),
        max_size=40,
    )
)
def test_the_table_holds_exactly_those_who_renewed_within_the_ttl(
    events: list[tuple[str, str]],
) -> None:
    table: leases.Leases = {}
    last: dict[str, float] = {}
    now_s = 0.0
    for name, event in events:
        if event == "renew":
            table, _ = leases.renew(table, make_lease(name), now_s=now_s, ttl_s=3.0)
            last[name] = now_s
        elif event == "release":
            table, _ = leases.release(table, name)
            last.pop(name, None)
        else:
            now_s += 1.0
        table, _ = leases.expire(table, now_s=now_s)
        assert set(table) == {n for n, at in last.items() if now_s - at < 3.0}
