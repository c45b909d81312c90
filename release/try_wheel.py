"""Use the highway that is installed in this environment as a user would, outside the repository: `python try_wheel.py README.md`.

`tox -e release` runs it in new environments, and cibuildwheel in its containers.
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path

readme = Path(sys.argv[1]).resolve()
first_example = re.search(r"^```python\n(.*?)^```", readme.read_text(), re.M | re.S)[1]
commands = os.path.dirname(sys.executable)

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)

    import highway.images._jpeg
    import highway.wire.transports.shm._message
    from highway.images.decode import EXTENSION, backend

    assert not Path(highway.__file__).is_relative_to(readme.parent / "highway"), f"{highway.__file__} is the checkout, not the wheel"
    assert backend() == EXTENSION, backend()
    names = {file.name for file in files(highway.__distribution__)}
    assert names >= {"LICENSE", "libjpeg-turbo-licence.txt", "uplot-licence.txt"}, sorted(names)

    subprocess.run(
        [f"{commands}/highway", "quickstart", "--set", "epochs=5", "--set", "transport=ipc"], check=True, stdout=subprocess.DEVNULL
    )
    assert Path("out/quickstart.png").stat().st_size > 10_000

    said = subprocess.run([f"{commands}/highway", "doctor"], stdout=subprocess.PIPE, text=True).stdout
    assert "formats that need no further package; with pip install" in " ".join(said.split()), said  # none of the extras is here

    if find_spec("torch"):
        Path("example.py").write_text(f"{first_example}\nprint(len(batch), sorted(state))\n")
        subprocess.run([sys.executable, "-W", "error", "example.py"], check=True)

print(f"highway {highway.__version__} works on Python {sys.version.split()[0]}: {highway.images._jpeg.LIBJPEG}")
