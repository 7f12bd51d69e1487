"""The draws of rules that weigh laws: uniform, repeatable, each its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from actors.sampling import dice
from actors.sampling.dice import Place, Use, uniform
from actors.sampling.noise import noise_key
from actors.sampling.noise import uniform as shared

torch.set_num_threads(1)


@pytest.mark.parametrize("use", Use)
def test_the_numbers_of_neighbouring_places_are_uniform_and_independent(use: Use) -> None:
    series = {
        "seeds": [uniform(Place(seed, 7, 9), use) for seed in range(20_000)],
        "bases": [uniform(Place(3, base, base + 2), use) for base in range(20_000)],
        "positions": [uniform(Place(2**64 - 1, 7, at), use) for at in range(20_000)],
    }
    for name, numbers in series.items():
        assert stats.kstest(numbers, "uniform").pvalue > 1e-3, name
        pairs, _, _ = np.histogram2d(numbers[:-1], numbers[1:], bins=8, range=[[0, 1], [0, 1]])
        assert stats.chisquare(pairs.ravel()).pvalue > 1e-3, name


def test_every_use_base_and_position_has_a_number_of_its_own() -> None:
    places = [Place(s, b, p) for s in range(12) for b in range(12) for p in range(12)]
    numbers = {uniform(place, use) for place in places for use in Use}
    assert len(numbers) == len(places) * len(Use)
    assert all(0.0 < number < 1.0 for number in numbers)


def test_they_know_nothing_of_the_noise_that_drafters_share() -> None:
    mine = [uniform(Place(seed, 5, 5), Use.ACCEPT) for seed in range(20_000)]
    theirs = [shared(noise_key(seed, 5), 0) for seed in range(20_000)]
    assert abs(np.corrcoef(mine, theirs)[0, 1]) < 4 / 20_000**0.5
    assert not set(mine) & set(theirs)


def test_a_chance_of_nought_never_passes_and_one_always() -> None:
    assert not any(dice.passes(0.0, Place(seed, 1, 1)) for seed in range(1000))
    assert all(dice.passes(1.0, Place(seed, 1, 1)) for seed in range(1000))


def test_what_has_no_weight_is_never_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.tensor([0.0, 0.3, 0.0, 0.7, 0.0], dtype=torch.float64)
    for number in (2.0**-53, 0.3, np.nextafter(0.3, 0), np.nextafter(0.3, 1), 1 - 2.0**-53):
        monkeypatch.setattr(dice, "uniform", lambda place, use, number=number: number)
        picked = dice.pick(weights, Place(0, 0, 0), Use.TARGET)
        assert picked == (1 if number < 0.3 else 3)
