"""What the tests with random pipelines that resume share: the number of cases, frequent markers, and maps."""

import math

import pytest

AT_ONCE = 25  # cases of one test
QUICK, SLOW = 25, 250  # cases of the quick tests, and of all
APART = 100_000  # between what maps add to a sample, which is its number


@pytest.fixture(scope="module", autouse=True)
def many_markers():
    """So that small sources send several, however quick they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("highway.engine.resume.MARK_EVERY", 4)
        patch.setattr("highway.engine.resume.MARK_APART", 0.0)
        patch.setattr("highway.engine.resume.MARK_SHARE", math.inf)
        yield


def pytest_generate_tests(metafunc):
    if "first" in metafunc.fixturenames:
        cases = metafunc.config.getoption("--resume-cases")
        quick = [pytest.param(first) for first in range(0, cases or QUICK, AT_ONCE)]
        slow = [] if cases else [pytest.param(first, marks=pytest.mark.slow) for first in range(QUICK, SLOW, AT_ONCE)]
        metafunc.parametrize("first", quick + slow)


def plus(item, by):
    return item + APART * by


def noise(item, rng):
    return item + APART * int(rng.integers(1000))
