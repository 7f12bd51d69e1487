"""What choosing one token costs: microseconds a row, one thread, a real vocabulary's size.

Rows are synthetic, standard normal times a spread: 1.5 leaves thousands of tokens in a nucleus of
0.9, 5 some tens. Before anything is timed, draws are compared with the definition (every token of
the row in fp64, all 53 bits). The naive leg is cheaper than that definition: fp64 over the whole
row, but only the 31 high bits of the noise.

    python infra/bench/sampling.py --rows 64 --repeat 400 --out infra/bench/results/sampling.md
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from actors.sampling.choose import choose_row
from actors.sampling.decide import Span, decide
from actors.sampling.noise import high_bits, noise_key, token_codes, uniform
from actors.sampling.params import SamplingParams
from actors.sampling.support import support

VOCAB = 49152
SPREADS = (1.5, 2.5, 5.0)
SETTINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "T=1, top_p=1": SamplingParams(),
    "T=1, top_p=0.9": SamplingParams(top_p=0.9),
    "T=1, top_k=50": SamplingParams(top_k=50),
    "T=1, top_k=50, top_p=0.9": SamplingParams(top_k=50, top_p=0.9),
    "T=1, min_p=0.05": SamplingParams(min_p=0.05),
}


def make_rows(count: int, spread: float) -> torch.Tensor:
    """bf16 logits [count, VOCAB], as a bf16 target gives them."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(count, VOCAB, generator=generator) * spread).bfloat16()


def naive_row(row: torch.Tensor, position: int) -> int:
    """T = 1, top_p = 1 without a bound: hash and two logarithms for every token, in fp64."""
    high = high_bits(noise_key(0, position), token_codes(VOCAB, row.device)).double()
    noise = torch.log1p(-(high + 0.5) * 2.0**-31).neg_().log_().neg_()
    return int((row.double() + noise).argmax())


def exact_row(row: torch.Tensor, position: int) -> int:
    """The definition: every token's score with all 53 bits."""
    key = noise_key(0, position)
    v = torch.tensor([uniform(key, token) for token in range(VOCAB)], dtype=torch.float64)
    return int((row.double() - torch.log1p(-v).neg_().log_()).argmax())


def median_us(run: Callable[[int], object], repeat: int) -> float:
    """Median wall microseconds of run(i), after a warm-up of a tenth."""
    times = []
    for i in range(repeat + repeat // 10):
        began = time.perf_counter()
        run(i)
        times.append(time.perf_counter() - began)
    return statistics.median(times[repeat // 10 :]) * 1e6


def greedy_batch_us(rows: torch.Tensor, repeat: int) -> float:
    """Microseconds a row when all rows of a step are greedy and share one argmax."""
    greedy = SETTINGS["greedy"]
    spans = [Span(i, (), greedy, (1,), 1, frozenset()) for i in range(len(rows))]
    return median_us(lambda _: decide(rows, spans), max(5, repeat // len(rows))) / len(rows)


def measure(row_count: int, repeat: int) -> dict[str, list[float]]:
    """Medians by setting, one for each spread."""
    table: dict[str, list[float]] = {}
    for spread in SPREADS:
        rows = make_rows(row_count, spread)
        for position in range(3):
            row = rows[position]
            if choose_row(row, SETTINGS["T=1, top_p=1"], position) != exact_row(row, position):
                raise SystemExit("the bounded draw and the definition disagree")
        for name, params in SETTINGS.items():
            cost = median_us(lambda i: choose_row(rows[i % row_count], params, i), repeat)  # noqa: B023
            table.setdefault(name, []).append(cost)
        table.setdefault(f"greedy, {row_count} rows of a step together", []).append(
            greedy_batch_us(rows, repeat)
        )
        naive = median_us(lambda i: naive_row(rows[i % row_count], i), repeat)  # noqa: B023
        table.setdefault("naive fp64 draw, T=1, top_p=1", []).append(naive)
    return table


def nucleus_sizes(row_count: int) -> list[int]:
    """Median tokens in a nucleus of 0.9, by spread: how hard the rows are."""
    params = SETTINGS["T=1, top_p=0.9"]
    medians = []
    for spread in SPREADS:
        rows = make_rows(row_count, spread).float()
        sizes = [len(support(row, float(row.max()), params)[0]) for row in rows]
        medians.append(int(statistics.median(sizes)))
    return medians


def report(table: dict[str, list[float]], sizes: Sequence[int], args: argparse.Namespace) -> str:
    heads = [f"spread {s:g}" for s in SPREADS]
    lines = [
        "# Choosing a token: microseconds a row",
        "",
        f"`python infra/bench/sampling.py --rows {args.rows} --repeat {args.repeat}`",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.machine()}, "
        f"{torch.backends.cpu.get_cpu_capability()}, 1 thread; load average of the machine at the "
        f"end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.",
        "",
        f"Vocabulary {VOCAB}, bf16 logits, standard normal times a spread; median of "
        f"{args.repeat} draws over {args.rows} rows after a warm-up. Median tokens in a nucleus "
        f"of 0.9: {', '.join(map(str, sizes))}.",
        "",
        f"| setting | {' | '.join(heads)} |",
        f"| --- |{' ---: |' * len(heads)}",
    ]
    for name, costs in table.items():
        lines.append(f"| {name} | {' | '.join(f'{cost:.0f}' for cost in costs)} |")
    lines += [
        "",
        "The naive leg takes two fp64 logarithms for every token and has 31 bits of noise, so it",
        "mis-weights tokens below about 1e-9; the bounded draw has all 53 and was compared with",
        "the definition on three rows of each spread. Medians are wall time and move with what",
        "else the machine does: compare within one run.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=400)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        text = report(measure(args.rows, args.repeat), nucleus_sizes(args.rows), args)
    print(text)
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
