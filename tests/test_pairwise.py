from itertools import combinations, product

import pytest
from pairwise import pairwise


@pytest.mark.parametrize("sizes", [(2, 3), (2, 2, 2, 4, 3), (9, 3, 2, 2), (6, 4, 4, 2), (1, 1, 3)], ids=str)
def test_any_two_values_of_two_parameters_meet_in_few_cases(sizes):
    parameters = [[f"{place}-{number}" for number in range(size)] for place, size in enumerate(sizes)]
    cases = pairwise(*parameters)
    assert set(cases) <= set(product(*parameters)) and len(cases) == len(set(cases))
    for first, second in combinations(range(len(sizes)), 2):
        assert {(case[first], case[second]) for case in cases} == set(product(parameters[first], parameters[second]))
    largest = sorted(sizes)[-2:]
    assert len(cases) <= 2 * largest[0] * largest[1]
