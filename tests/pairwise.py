"""Cases in which any two values of any two parameters meet: a small part of all combinations, of which the others add little."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any


def pairwise(*parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return cases, each with one value of each parameter, such that each value of a parameter meets each value of any other in a case.

    >>> pairwise("ab", [1, 2], [True, False])
    [('a', 1, True), ('a', 2, False), ('b', 1, False), ('b', 2, True)]
    """
    choices = [[(place, number) for number in range(len(values))] for place, values in enumerate(parameters)]
    left = dict.fromkeys((one, other) for first, second in combinations(choices, 2) for one in first for other in second)
    cases = []
    while left:
        case = dict(next(iter(left)))
        for place, numbers in enumerate(choices):
            if place not in case:
                given = list(case.items())
                _, case[place] = max(numbers, key=lambda choice: sum(tuple(sorted((choice, one))) in left for one in given))
        cases.append(tuple(values[case[place]] for place, values in enumerate(parameters)))
        for pair in combinations(sorted(case.items()), 2):
            left.pop(pair, None)
    return cases
