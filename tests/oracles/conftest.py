"""Libraries that highway's formats are compared with; they are in the environment `tox -e oracles`."""

import pytest
from without_operators import torchvision_without_operators

ELSEWHERE = "runs by `tox -e oracles`"


@pytest.fixture(scope="session")
def torchvision():
    pytest.importorskip("torch", reason=ELSEWHERE)
    pytest.importorskip("pycocotools", reason=ELSEWHERE)  # alone in that environment: torchvision elsewhere may be of another build
    return torchvision_without_operators()
