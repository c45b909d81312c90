"""The context that a stage receives."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from highway import Cancelled, Pipeline, Stage
from highway.engine import cancel
from highway.engine.context import Context, here, in_stage
from highway.modules import Concat, Processes, Repeat


class Source:
    """A source that takes the context, and can be iterated over on its own."""

    def __init__(self, count=3):
        self.count = count

    def __iter__(self, context=None):
        context = context or here()
        context.counters(self)["seed"] = context.seed
        for number in range(self.count):
            yield number, context


def own(item, context):
    """A map that takes the context."""
    assert context is here()
    context.count(own, "items")
    return item[0], item[1].seed, context.seed, item[1] is context


class Stream:
    """A stream, which has the context with its items."""

    def stream(self, items):
        assert items.context is here()
        for item in items:
            items.context.count(self, "items")
            yield (*item, items.context.workers_behind)


class Sink:
    """A sink, which has the context with its items."""

    def consume(self, items):
        self.items = list(items)
        items.context.counters(self)["items"] = len(self.items)


def test_each_shape_receives_the_context_of_its_stage():
    sink = Sink()
    pipeline = Pipeline([Source(), Stage(own, num_workers=2), Stream(), Stage(lambda item: item, num_workers=3), sink], seed=7, start=False)
    pipeline.run()
    assert sink.items == [(number, 7, 7, False, 3) for number in range(3)]
    counted = [stage.counters for stage in pipeline.stats().stages]
    assert counted == [{"seed": 7}, {"items": 3}, {"items": 3}, {}, {"items": 3}]


def test_a_source_that_takes_the_context_can_be_iterated_over_on_its_own():
    assert [(number, context.seed) for number, context in Source()] == [(0, 0), (1, 0), (2, 0)]
    assert not in_stage()


def test_a_function_that_is_a_source_receives_the_context():
    def numbers(context=None):
        yield context.seed

    with Pipeline([numbers], seed=3) as pipeline:
        assert list(pipeline) == [3]


@pytest.mark.parametrize("around", [lambda source: Concat([source]), lambda source: Repeat(source, 1)])
def test_a_source_inside_of_another_one_receives_the_context_of_the_stage(around):
    with Pipeline([around(Source(2)), own], seed=5) as pipeline:
        assert list(pipeline) == [(0, 5, 5, False), (1, 5, 5, False)]
        assert pipeline.stats().stages[0].counters == {}  # those of the inner one are not shown


def seeds(item, context):
    return context.seed, in_stage()


def test_a_map_in_another_process_receives_the_context_of_that():
    with Pipeline([range(2), Processes([seeds], 1)], seed=4) as pipeline:
        assert list(pipeline) == [(4, True)] * 2


def test_a_parameter_context_with_a_value_of_its_own_is_the_users():
    def window(item, context=3):
        return item * context

    with Pipeline([range(3), window]) as pipeline:
        assert list(pipeline) == [0, 3, 6]


def test_errors_that_a_stage_goes_on_from_count_for_it():
    def odd(item, context):
        if item % 2:
            context.report_error(ValueError(f"{item} is odd"))
        return item

    with Pipeline([range(6), Stage(odd, on_error="skip")]) as pipeline:
        assert list(pipeline) == [0, 1, 2, 3, 4, 5]
        assert pipeline.stats().stages[1].errors == 3
    with pytest.raises(ValueError, match="1 is odd"), Pipeline([range(6), odd]) as pipeline:
        list(pipeline)


def test_outside_of_a_stage_a_context_is_never_cancelled_and_skips_no_errors():
    context = here()
    context.check()
    context.wait(0.0)
    with context.starved(), context.blocked():
        assert not (context.draining or context.is_skipped(0) or context.finish())
    with pytest.raises(ValueError, match="odd"):
        context.report_error(ValueError("odd"))


def test_a_context_that_is_cancelled_unwinds_who_checks_or_waits():
    context = Context()
    context.cancel()
    for unwind in (context.check, lambda: context.wait(60)):
        with pytest.raises(Cancelled):
            unwind()


def test_the_functions_of_version_0_1_0_work_with_a_warning_that_names_both_forms():
    with pytest.warns(FutureWarning, match=r"cancel.seed is seed of the context of a stage now: items.context.seed, or the argument"):
        assert cancel.seed() == 0
    with pytest.warns(FutureWarning, match=r"highway.engine.cancel.counters is counters of the context of a stage now"):
        assert cancel.counters(own) == {}
    with pytest.warns(FutureWarning, match=r"cancel.is_draining is draining of the context"):
        assert cancel.is_draining() is False
    with pytest.warns(FutureWarning, match=r"in_stage is in highway.engine.context now"):
        assert cancel.in_stage() is False
    with pytest.raises(AttributeError, match=r"module 'highway.engine.cancel' has no attribute 'nothing'"):
        cancel.nothing()


@pytest.mark.parametrize(
    ("wake", "error"),
    [
        (Context.notify, None),
        (Context.want, None),
        (lambda context: context.skip(3), None),
        (Context.cancel, Cancelled),
        (lambda context: context.drain(interrupt=True), Cancelled),
    ],
)
def test_a_wait_is_woken_and_looks_at_nothing_in_between(wake, error):
    context, waits, looks, is_over = Context(), threading.Event(), [], error is None

    def holds():
        looks.append(is_over and waits.is_set())
        waits.set()
        return looks[-1]

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(context.wait_until, holds)
        assert waits.wait(30)
        wake(context)  # which takes the lock that is held until the wait begins
        assert type(found.exception(30)) is (error or type(None))
    assert looks == [False, is_over]
