"""Pipelines in ``fit`` of Keras on its three backends, each in a process of its own; run by ``tox -e adapters-tf``."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from highway.errors import ConfigError

FIT = '''
import json, warnings
import numpy as np
import keras
from highway import Pipeline, PipelineError
from highway.adapters.keras import dataset
from highway.modules import Batch, Reader, Repeat

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
X = rng.normal(size=(48, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)
W = rng.random(48).astype(np.float32)


def pipeline(*fields, epochs=None, steps=()):
    samples = [tuple(field[n] for field in fields) for n in range(48)]
    return Pipeline([Reader(samples, 8, shuffle=False, epochs=epochs), *steps])


def model(inputs=1, out=2):
    named = [keras.Input((4,), name=f"in{n}") for n in range(inputs)]
    start = named[0] if inputs == 1 else keras.layers.Concatenate()(named)
    out = keras.layers.Dense(out, name="out", kernel_initializer="ones")(start)
    made = keras.Model(named[0] if inputs == 1 else {one.name: one for one in named}, out)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy"])
    return made


def losses(history):
    return [round(float(loss), 4) for loss in history.history["loss"]]


def expected(epochs=2, **options):
    """What Keras makes of the same as arrays."""
    return losses(model().fit(X, Y, batch_size=8, shuffle=False, epochs=epochs, verbose=0, **options))


def error_of(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return repr(function())
        except Exception as error:
            return f"{type(error).__name__}: {error}"


class Steps(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.said, self.batches = self.params["steps"], 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1


def fail_at_20(sample, rng):
    if sample[0][0] == X[20][0]:
        raise KeyError("twenty")
    return sample


said = {}
steps = Steps()
with pipeline(X, Y) as train, pipeline(X, Y) as test:
    history = model().fit(dataset(train), validation_data=dataset(test), epochs=2, verbose=0, callbacks=[steps])
    said["epochs"] = losses(history) == expected(validation_data=(X, Y)), len(history.history["val_loss"])
    said["steps"] = steps.said, steps.batches
with pipeline(X, Y) as train:
    weighted = losses(model().fit(dataset(train), epochs=2, verbose=0, class_weight={0: 1.0, 1: 5.0}))
    said["class_weight"] = weighted == expected(class_weight={0: 1.0, 1: 5.0}) != expected()
    again = dataset(train)
    said["again"] = [losses(model().fit(again, epochs=2, verbose=0)) == expected() for _ in range(2)]
with pipeline(X, Y) as train:
    fitted = model()
    said["anew"] = [*losses(fitted.fit(dataset(train), verbose=0)), *losses(fitted.fit(dataset(train), verbose=0))] == expected()
with pipeline(X, Y, W) as train:
    said["sample_weight"] = losses(model().fit(dataset(train), epochs=2, verbose=0)) == expected(sample_weight=W)
    both = dataset(train)
    said["both"] = error_of(lambda: model().fit(both, verbose=0, class_weight={1: 2.0}))
by_name = [({name: value[n] for name, value in (("in0", X), ("in1", -X))}, Y[n]) for n in range(48)]


def joined(samples):
    inputs, labels = samples
    return {name: np.stack([one[name] for one in inputs]) for name in inputs[0]}, np.stack(labels)


with Pipeline([Reader(by_name, shuffle=False), Batch(8, as_list=True), joined]) as train:
    said["dicts"] = len(losses(model(2).fit(dataset(train), epochs=2, verbose=0)))
one = Pipeline([Reader([(x, y) for x, y in zip(X, Y)], 48, shuffle=False, epochs=2)])
said["one_batch"] = losses(model().fit(dataset(one), epochs=2, verbose=0)) == losses(
    model().fit(X, Y, batch_size=48, shuffle=False, epochs=2, verbose=0)
)
said["over"] = error_of(lambda: model().fit(dataset(one), epochs=1, verbose=0))
with Pipeline([Reader([(x, y) for x, y in zip(X, Y)], shuffle=False), fail_at_20, Batch(8)]) as train:
    said["error"] = error_of(lambda: model().fit(dataset(train), epochs=2, verbose=0))
class Half:  # whose length is wrong
    def stream(self, items):
        for number, item in enumerate(items):
            if number % 2:
                yield item
    def length(self, number):
        return number
with Pipeline([Reader([(x, y) for x, y in zip(X, Y)], shuffle=False), Half(), Batch(8, last="keep")]) as train:
    said["short"] = error_of(lambda: model().fit(dataset(train), epochs=2, verbose=0))
with pipeline(X, epochs=1) as test:
    said["predict"] = model().predict(dataset(test), verbose=0).shape
with pipeline(X, Y, epochs=2) as test:
    fitted = model()
    quiet = {"verbose": 0, "return_dict": True}
    said["evaluate"] = fitted.evaluate(dataset(test), **quiet) == fitted.evaluate(X, Y, batch_size=8, **quiet)


class States(keras.callbacks.Callback):
    """Keeps the states of a pipeline: when the training begins, after each step, and after each epoch."""

    def __init__(self, pipeline):
        super().__init__()
        self.pipeline, self.begun, self.steps, self.epochs = pipeline, None, [], []

    def on_train_begin(self, logs=None):
        self.begun = self.pipeline.state_dict()

    def on_train_batch_end(self, batch, logs=None):
        try:
            self.steps.append(self.pipeline.state_dict())
        except PipelineError as error:
            self.steps.append(str(error))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(self.pipeline.state_dict())


def shuffled():
    return Pipeline([Reader([(X[n], n) for n in range(48)], 8, epochs=3)], seed=5)


def rows(pipeline):
    return [numbers.tolist() for _, numbers in pipeline]


def resumed(state):
    with shuffled() as other:
        other.load_state_dict(state)
        return rows(other)


def resumed_fit(state):
    with shuffled() as other:
        other.load_state_dict(state)
        noted = Noted(other)
        model(out=48).fit(dataset(noted), verbose=0, initial_epoch=1, epochs=3)
        return noted.rows


class Noted:
    """Notes which batches are taken of a pipeline."""

    def __init__(self, pipeline):
        self.pipeline, self.rows, self.position, self.received = pipeline, [], pipeline.position, pipeline.received

    def __len__(self):
        return len(self.pipeline)

    def __iter__(self):
        for batch in self.pipeline:
            self.rows.append(batch[1].tolist())
            yield batch


with shuffled() as train:
    epochs = [rows(train) for _ in range(3)]
for name, options in (("known", {}), ("unknown", {"steps": 0})):
    with shuffled() as train:
        states = States(train)
        with dataset(train, **options) as batches:
            model(out=48).fit(batches, epochs=2, verbose=0, callbacks=[states])
        at_end = [resumed(state) for state in (states.begun, *states.epochs)] == epochs
        rest = [epoch[n:] for epoch in epochs[:2] for n in range(1, 7)]
        in_epoch = [state if isinstance(state, str) else resumed(state) == rest[n] for n, state in enumerate(states.steps)]
        said["states, steps " + name] = at_end, in_epoch
if keras.backend.backend() == "tensorflow":
    with shuffled() as train:
        adapter = dataset(train)
        adapter.get_tf_dataset()
        train.received(None)  # the end of the last epoch is noted when TensorFlow has read the first batch of this one
        adapter.on_epoch_begin()
        try:
            said["begun"] = train.state_dict() is None
        except PipelineError as error:
            said["begun"] = str(error)
said["resumed fit"] = resumed_fit(states.epochs[0]) == [*epochs[1], *epochs[2]]
with shuffled() as train:
    states = States(train)
    states.on_epoch_end = lambda epoch, logs=None: None
    model(out=48).fit(dataset(train), epochs=2, steps_per_epoch=3, verbose=0, callbacks=[states])
    said["split"] = [state if isinstance(state, str) else resumed(state) == epochs[0][n + 1 :] for n, state in enumerate(states.steps)]
with Pipeline([Reader([(X[n], n) for n in range(48)], 48, epochs=3)], seed=5) as train:
    noted = Noted(train)
    model(out=48).fit(dataset(noted), verbose=0, epochs=2)
    said["one_batch_epochs"] = len(noted.rows)
print(json.dumps(said))
'''


def test_without_keras_the_import_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "highway.adapters.keras", raising=False)
    for name in ("keras", "keras.src.trainers.data_adapters"):  # another test may have imported it
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"^highway\.adapters\.keras needs keras 3\.6 or later: pip install keras, and the backend"):
        import highway.adapters.keras  # noqa: F401


@pytest.fixture(scope="module", params=["tensorflow", "jax", "torch"])
def said(request):
    for package in ("keras", request.param):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: this is run by tox -e adapters-tf")
    environment = os.environ | {"KERAS_BACKEND": request.param, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run([sys.executable, "-c", FIT], env=environment, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_epochs_and_validation_are_those_of_the_same_arrays(said):
    assert said["epochs"] == [True, 2]


def test_steps_are_known_before_the_first_epoch(said):
    assert said["steps"] == [6, 12]


def test_class_weight_and_sample_weight_count(said):
    assert (said["class_weight"], said["sample_weight"]) == (True, True)
    assert said["both"].startswith("PipelineError: dataset: the items already have sample weights; remove class_weight from fit()")


def test_a_second_fit_goes_on(said):
    assert said["again"] == [True, True]


def test_a_dataset_that_is_made_anew_in_each_epoch_goes_on(said):
    assert said["anew"] is True


def test_dicts_are_inputs_by_name(said):
    assert said["dicts"] == 2


def test_the_batches_that_keras_looks_at_are_trained_with(said):
    assert (said["one_batch"], said["one_batch_epochs"]) == (True, 2)
    assert said["over"].startswith("EndOfStream: the pipeline has ended: Reader has yielded all its epochs (2)")


def test_errors_are_the_original_ones(said):
    assert said["error"].startswith("KeyError: 'twenty'")


def test_an_epoch_that_is_shorter_than_it_should_be_is_an_error(said):
    assert said["short"].startswith("PipelineError: dataset: the epoch had ")
    assert " batches; expected 6 (steps, or len(pipeline)); pass the number of batches, dataset(pipeline, steps=...)" in said["short"]


@pytest.mark.parametrize("steps", ["known", "unknown"])
def test_a_state_at_the_end_of_an_epoch_counts_its_batches(said, steps):
    at_end, in_epoch = said[f"states, steps {steps}"]
    assert at_end
    assert len(in_epoch) == 12


def test_a_state_within_an_epoch_is_that_of_the_last_step_or_refused(said):
    _, in_epoch = said["states, steps known"]
    assert set(in_epoch) == set(said["split"])
    assert len(set(in_epoch)) == 1
    assert in_epoch[0] is True or in_epoch[0].startswith(
        "state_dict: in an epoch, Keras has already read batches that it has not trained on; call"
    )


def test_states_are_refused_from_the_beginning_of_an_epoch_where_batches_are_read_ahead(said):
    """On another thread, TensorFlow may read the first batches of an epoch before the end of the last one is noted."""
    if "begun" in said:
        assert said["begun"].startswith("state_dict: in an epoch, Keras has already read batches that it has not trained on; call")


def test_a_resumed_fit_trains_the_epochs_that_are_left(said):
    assert said["resumed fit"] is True


def test_predict_and_evaluate_take_it_too(said):
    assert (said["predict"], said["evaluate"]) == ([48, 2], True)
