"""What keeps roles from running on hosts that nobody knows before."""

import re

import pytest

FILE = """
hosts: {here: 10.9.8.7}
links:
  raw: {from: reader, to: trainer, LINK}
roles:
  reader: {hosts: here, stages: [$Numbers, ZMQSink: SINK]}
  trainer: {hosts: here, stages: [ZMQSource: SOURCE, $Say]}
"""


@pytest.mark.parametrize(
    ("link", "sink", "source", "message"),
    [
        ("port: 5555, tap: 5556", "{link: raw}", "{link: raw}", ""),
        (
            "transport: shm",
            "{link: raw}",
            "{link: raw}",
            r"links\.raw\.transport: a link over shm works only within one host, but this engine may choose",
        ),
        (
            "port: 5555",
            '{url: "zpush://10.9.8.7:5557"}',
            '{url: "zpull://10.9.8.7:5557"}',
            r"roles\.reader\.stages\[1\]: reader and trainer use tcp://10\.9\.8\.7:5557, but their hosts are not known before the run",
        ),
        (
            "port: 5555",
            '{url: "zpush://0.0.0.0:5557"}',
            '{url: "zrpull://127.0.0.1:5557"}',
            r"roles\.reader\.stages\[1\]: reader and trainer use tcp://\*:5557, but their hosts are not known before the run",
        ),
    ],
)
def test_a_file_is_checked_for_ray(ask, write, link, sink, source, message):
    text = FILE.replace("LINK", link).replace("SINK", sink).replace("SOURCE", source)
    if "url" in sink:
        text = re.sub(r"links:\n.*\n", "", text)
    code, _, error = ask("check", write(text), "--plugin", "mine", "--on", "ray")
    assert (code, bool(error)) == ((2, True) if message else (0, False)), error
    assert re.search(message, error), error
