"""The techniques of the search, and how hard it tries: all in one place.

A *technique* can be switched off, and the search goes on without it: it finds a dearer schedule, or
proves less, or takes longer, but what it says is still true. `benchmarks/ablation.py` does so, one
at a time; [docs/ablation.md](../../docs/ablation.md) has what each of them gains. The rest are
numbers. A *share* is one of the effort that is left when a step begins; effort is counted as work
(`model/clock.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace


def _technique(does: str) -> bool:
    return field(default=True, metadata={"does": does})


@dataclass(frozen=True)
class SearchParams:
    """The techniques, each with what it does and a switch, and the numbers of the search."""

    # First schedules.
    repair: bool = _technique("keeps everything and evicts what costs least where RAM is exceeded")
    greedy: bool = _technique("evicts, in order, what is cheapest to get back where RAM is short")
    gradual: bool = _technique("repairs for less and less RAM where that fails at once")
    baselines: bool = _technique("makes the schedules of the published constructive strategies")
    # Better ones, by MILPs over some of the slots.
    near: bool = _technique("MILPs over recomputes few edges above the operation of the stage")
    windows: bool = _technique("MILPs over all recomputes in a window of stages")
    guide: bool = _technique("large models get the cuts and reduced costs of smaller ones")
    overhead_filter: bool = _technique("leaves out what costs more than the best schedule spends")
    warm_start: bool = _technique("MILPs start from the best schedule")
    # With DMA.
    overlap: bool = _technique("the model counts what of the transfers overlaps computing")
    serial: bool = _technique("models in which some of the transfers do not overlap")
    hurry: bool = _technique("moves transfers and frees at random to overlap more")
    anneal: bool = _technique("changes order, evictions and transfers together at random")
    # With a deadline.
    relaxed: bool = _technique("begins with the problem without its deadline")
    # Bounds, by the relaxation over all slots.
    cuts: bool = _technique("write cuts: what a use wants was kept, made or written")
    lasting: bool = _technique("the write cuts of what nothing recomputes, from the start")
    fixing: bool = _technique("fixes the columns that reduced costs rule out")
    paths: bool = _technique("adds up reduced costs along shortest paths for that")
    page_budget: bool = _technique("bounds what all pages of a better schedule cost")
    rest: bool = _technique("the MILP over the recomputes that the relaxation leaves, if few")
    branch: bool = _technique("branch and bound on the relaxation")
    blocks: bool = _technique("bounds of blocks of stages, as rows of the relaxation")
    # Bounds, by what RAM some stages need.
    checkpoints: bool = _technique("bounds large problems by the RAM that a few stages need")
    ladder: bool = _technique("the same over more and more stages, on the other core")
    # Other orders of the operations.
    reorder: bool = _technique("searches orders that exceed the RAM as little as possible")
    polish: bool = _technique("changes order and recomputes together")
    neighbours: bool = _technique("searches orders near the given one, and of low peak")
    machine: bool = _technique("small problems with DMA: all states, where a deadline is missed")
    single: bool = _technique("searches without paging, and without recomputing, for that long")
    again: bool = _technique("goes on with other random numbers while the gap is open")

    # How large a problem is, in optional slots, or in recomputes that are possible.
    tiny: int = 300
    """Up to here problems are solved to a gap that nobody asks for: `tiny_gap`."""
    tiny_gap: float = 1e-6
    small: int = 1_500
    """Up to here the MILP over all slots is solved at once."""
    many: int = 20_000
    """From here on branch and bound pays in models of checkpoints."""
    large: int = 60_000
    """From here on the relaxation takes so long that checkpoints come first."""
    huge: int = 100_000
    """From here on no model over slots is built."""

    # First schedules.
    greedy_share: float = 0.25
    """For all greedy schedules, and their most work."""
    greedy_work: float = 2.0
    greedy_chain: int = 30
    """Recomputes that the greedy makes in a row at most to get a tensor back."""
    repair_share: float = 0.25
    repair_chain: int = 6
    """Recomputes that one repair makes in a row at most."""
    repair_plans: int = 3
    """Plans that a repair tries, cheapest first."""
    repair_most_plans: int = 100
    """Plans that it tries before an excess counts as hopeless."""
    repair_patience: int = 40
    """Rounds without a better schedule before repairing ends."""
    repair_attempts: int = 20
    """Attempts at a first schedule."""
    plain_share: float = 0.5
    """For schedules in which operations run as they are, where they have variants."""
    stream_share: float = 0.25
    """For schedules in which operations run in variants, and their most work."""
    stream_work: float = 2.0
    stream_patience: int = 30
    """Changes at random in a row that save nothing."""
    baselines_most: int = 600
    """Operations up to which the constructive strategies are made."""
    baseline_share: float = 0.03
    """For each of them before the search, their most work, and seconds by which they may be late
    after it."""
    baseline_work: float = 2.0
    baseline_late_s: float = 0.3

    # MILPs over some of the slots.
    depths: tuple[int, ...] = (2, 4)
    """Edges above the operation of the stage, step by step."""
    near_share: float = 0.1
    window_stages: tuple[int, ...] = (12, 24)
    """Stages of windows, in turn."""
    window_depth: int = 8
    window_patience: int = 12
    """Windows in a row without success that are enough."""
    window_work: float = 8.0
    """Most work for a window."""
    milp_cut_share: float = 0.3
    """The share of the effort for a MILP that its cuts get."""
    serial_shares: tuple[float, ...] = (1.0, 0.5, 0.25)
    """Shares of the time of transfers that are added to that of computing, one model after another,
    where the makespan with DMA is not known. With all of it the model is safe."""
    shuffle_rounds: int = 20
    """Moves of transfers at random, for each step, and ..."""
    shuffle_steps: int = 40_000
    """... steps that all of them go through at most."""
    relaxed_share: float = 0.2
    """For the problem without its deadline."""
    anneal_share: float = 0.25
    anneal_work: float = 3.0
    """For annealing where no schedule meets a deadline, and its most work, each time ..."""
    anneal_turns: int = 2
    """... of so many at most."""

    # Bounds.
    relaxation_share: float = 0.5
    """For the relaxation with its first cuts."""
    cut_share: float = 0.3
    """For further cuts, where there is nothing quicker left."""
    cut_rounds: int = 30
    cut_progress: float = 0.01
    """The least share of the gap to the best schedule that a round of cuts has to close."""
    cut_patience: int = 6
    """Rounds of further cuts in a row that may gain less."""
    branch_share: float = 0.12
    branch_most: int = 60_000
    """Columns up to which branch and bound is tried where it is not the only way."""
    rest_share: float = 0.75
    rest_most: int = 2_500
    """Recomputes that may be left for the MILP over them."""
    block_stages: int = 16
    block_share: float = 0.8
    """For a pass over all blocks, and of that for one of them."""
    one_block_share: float = 0.4
    block_nodes: int = 400
    """Nodes of branch and bound in a block."""
    block_progress: float = 0.1
    """The least share of the gap that a pass has to close to be followed by another."""
    threads: int = 2
    """Cores: how many blocks are solved at a time, and whether bounds are proven beside a search
    for better schedules, or first. What is found is the same."""
    checkpoint_counts: tuple[int, ...] = (10, 20)
    """Stages in models of checkpoints, and in those on the other core."""
    ladder_counts: tuple[int, ...] = (20, 30, 40)
    checkpoint_depth: int = 3
    """Edges over which a model of checkpoints follows recomputes."""
    checkpoint_relax_share: float = 0.5
    checkpoint_share: float = 0.25
    """For branch and bound on a model of checkpoints."""
    race_share: float = 0.75
    """For bounds on both cores."""
    join_s: float = 1.5
    """Seconds to wait for the other thread when it is told to stop."""

    # Orders.
    given_share: float = 0.7
    """For the given order, and of that for its beginning where the problem is large."""
    begin_share: float = 0.95
    first_share: float = 0.1
    """For first schedules in one order."""
    single_share: float = 0.15
    """For first schedules without paging, and for those without recomputing, and their most
    work."""
    single_work: float = 0.5
    orders_share: float = 0.15
    """For looking for other orders."""
    polish_share: float = 0.6
    other_bound_share: float = 0.3
    """For the bound in the given order if it is not the best."""
    haste_share: float = 0.5
    """For any step, as long as there is no schedule."""
    margin: float = 0.03
    """The share by which a schedule must be better to change the order where tensors can be paged,
    as the bound of a second order takes long there."""
    further_share: float = 0.3
    """For orders near the given one where that is settled, and the most work where operations have
    variants: each order takes longer then."""
    further_work: float = 1.0
    further_most: int = 60
    """How many of those are tried where the whole model takes no time, fewer the larger it is: so
    that their recomputes are no more than `further_recomputes`. Nearly all of what there is to gain
    is found in the first dozen."""
    further_least: int = 12
    further_recomputes: int = 1_000
    stretches: tuple[int, ...] = (6, 12, 25, 50)
    """Operations in a stretch of an order that is changed."""
    reorder_patience: int = 8
    """Rounds for each operation without a better order."""
    polish_patience: int = 300
    """Rounds without a cheaper schedule, and rounds for the order in each."""
    polish_rounds: int = 200

    # While the gap is open.
    again_single_share: float = 0.25
    again_repair_share: float = 0.1
    again_windows_share: float = 0.2
    again_orders_share: float = 0.2
    again_whole_share: float = 0.5

    # Proofs, and the numbers in messages.
    message_s: float = 5.0
    """Seconds for finding a number for a message after a search, and its share; before any search;
    where a search has ended at its limit."""
    message_share: float = 0.2
    hopeless_s: float = 0.6
    last_s: float = 0.3
    machine_work: float = 10.0
    """Most work for all states, where no schedule in the given order meets a deadline, and its
    share where others, with kernels in tiles, want the time."""
    machine_share: float = 0.05
    exact_most: int = 2_000
    """Optional slots up to which exact models are tried for a message."""
    least_order_share: float = 0.8
    """For the least RAM in one order; of that, for repairing where the exact model has the rest,
    and where it is too large; for greedy schedules before the exact model."""
    least_repair_share: float = 0.4
    least_repair_alone_share: float = 0.7
    least_greedy_share: float = 0.3
    least_orders: int = 60
    """Orders that are tried for less RAM where the exact model takes no time, and elsewhere."""
    least_few_orders: int = 8

    @staticmethod
    def techniques() -> dict[str, str]:
        """The description of each technique, by its name."""
        return {f.name: f.metadata["does"] for f in fields(SearchParams) if "does" in f.metadata}

    def without(self, technique: str) -> SearchParams:
        """The parameters without a technique. Raises ValueError for an unknown one."""
        if technique not in self.techniques():
            raise ValueError(f"no technique {technique!r}: {', '.join(self.techniques())}")
        return replace(self, **{technique: False})

    def for_variants(self) -> SearchParams:
        """The parameters without the techniques that do not hold, or do not know, that operations
        have variants."""
        return replace(self, **dict.fromkeys(_WITHOUT_VARIANTS, False))


_WITHOUT_VARIANTS = (
    "baselines",
    "overlap",
    "anneal",
    "cuts",
    "lasting",
    "paths",
    "page_budget",
    "blocks",
    "checkpoints",
    "ladder",
    "reorder",
    "polish",
    "machine",
)

DEFAULTS = SearchParams()
