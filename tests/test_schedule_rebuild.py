"""Which buffers a run takes over in place."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from poetc.schedule.model.problem import Operation, Place, Problem, Tensor
from poetc.schedule.model.rebuild import share


def _operation(sizes: list[int], inputs: int, pairs: list[tuple[int, int]]) -> Problem:
    """One operation with that many inputs, as large as its largest output, before its outputs."""
    tensors = [Tensor(f"i{i}", max(sizes), start=Place.RAM) for i in range(inputs)]
    tensors += [Tensor(f"o{o}", size) for o, size in enumerate(sizes)]
    outputs = tuple(range(inputs, inputs + len(sizes)))
    inplace = tuple((inputs + o, i) for o, i in pairs)
    operation = Operation("f", tuple(range(inputs)), outputs, 1, 1, inplace=inplace)
    return Problem((operation,), tuple(tensors))


@given(
    st.lists(st.integers(1, 4).map(lambda n: 4 * n), min_size=1, max_size=4),
    st.integers(1, 4),
    st.data(),
)
def test_no_other_pairs_save_more(sizes: list[int], inputs: int, data: st.DataObject) -> None:
    every = list(itertools.product(range(len(sizes)), range(inputs)))
    pairs = data.draw(st.lists(st.sampled_from(every), unique=True))
    problem = _operation(sizes, inputs, pairs)
    dying = data.draw(st.sets(st.sampled_from(range(inputs))))

    def matching(chosen: tuple[tuple[int, int], ...]) -> bool:
        return all(len(set(side)) == len(chosen) for side in zip(*chosen, strict=True))

    def saved(chosen: tuple[tuple[int, int], ...]) -> int:
        return sum(problem.tensors[o].bytes for o, _ in chosen)

    allowed = [(o, i) for o, i in problem.operations[0].inplace if i in dying]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(allowed, n) for n in range(len(allowed) + 1)
    )
    found = share(problem, 0, dying)
    assert set(found) <= set(allowed) and matching(found)
    assert saved(found) == max(saved(chosen) for chosen in subsets if matching(chosen))


def test_many_pairs_take_no_time() -> None:
    n = 60
    problem = _operation([4] * n, n, list(itertools.product(range(n), range(n))))
    assert len(share(problem, 0, set(range(n)))) == n
