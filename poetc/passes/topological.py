"""Topological order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def ordered(
    nodes: Sequence[Node],
    followers: Callable[[Node], Iterable[Node]],
    place: Callable[[Node], float],
) -> list[Node]:
    """The nodes, each after those that it follows, otherwise by place, and by their own order in
    case of doubt; without those that wait for each other."""
    number = {node: n for n, node in enumerate(nodes)}
    waits_for = Counter(follower for node in nodes for follower in followers(node))
    ready = [(place(node), number[node]) for node in nodes if not waits_for[node]]
    heapify(ready)
    order: list[Node] = []
    while ready:
        node = nodes[heappop(ready)[1]]
        order.append(node)
        for follower in followers(node):
            waits_for[follower] -= 1
            if not waits_for[follower]:
                heappush(ready, (place(follower), number[follower]))
    return order
