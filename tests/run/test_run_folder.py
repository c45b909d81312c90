"""The folder of a run: what a launcher and its jobs tell each other by files."""

import os

import pytest

from highway import Pipeline
from highway.run import folder
from highway.run.folder import Claim, JobOrder, Line, RoleSoftware, RunFolder, newest, place_of
from highway.run.remote import News
from highway.run.report import RoleReport
from highway.wire.registries.folder import FolderRendezvous
from highway.wire.tally import Counts


@pytest.fixture
def run_folder(tmp_path):
    found = RunFolder(tmp_path / "a run")
    found.make()
    return found


def test_what_is_wanted_and_who_has_a_place_arrive_as_they_were(run_folder):
    other = RunFolder(run_folder.path)
    assert (other.order("worker.0"), other.claim("worker.0")) == (None, Claim("", 0))
    for start in (1, 2):
        order = JobOrder(start, "[]", [15] * start, "0.2")
        run_folder.want("worker.0", order)
        run_folder.take("worker.0", Claim(f"12_0.{start}", start))
        assert (other.order("worker.0"), other.claim("worker.0")) == (order, Claim(f"12_0.{start}", start))
    assert other.heartbeat() == b""
    run_folder.beat(3)
    assert other.heartbeat() == b"3"


def test_the_first_process_of_a_role_says_what_its_pixels_are_made_by(run_folder):
    first, second = RoleSoftware("highway 1", "10.0.0.1"), RoleSoftware("highway 2", "10.0.0.2")
    assert [run_folder.agree("a", made) for made in (first, second, first)] == [first] * 3
    assert run_folder.agree("b", second) == second
    assert sorted(path.name for path in (run_folder.path / "orders").iterdir()) == ["a.made", "b.made"]


def test_a_folder_that_a_run_has_used_is_no_new_one(run_folder):
    with pytest.raises(FileExistsError):
        run_folder.make()


def test_who_joins_a_run_may_come_first(tmp_path):
    FolderRendezvous(tmp_path / "run" / "rendezvous").publish({"out.trainer.0": "tcp://10.0.0.7:5555"})
    found = RunFolder(tmp_path / "run")
    found.make()
    assert os.listdir(found.rendezvous) == ["out.trainer.0"]


def test_news_arrive_as_they_were_told(run_folder):
    stats = Pipeline([range(7), str]).stats()
    news = News("10.0.0.7", [("ü\n", True)], [RoleReport(stats=stats), RoleReport(error="no")], Counts(1, 2, 3, 4), -9)
    writer, reader = run_folder.writer("12_0.0"), run_folder.reader("12_0.0")
    assert reader.hear() == []
    writer.tell(Line(1, news))
    writer.tell(Line(2))
    assert reader.hear() == [Line(1, news), Line(2)]
    assert reader.hear() == []
    assert run_folder.holders() == {"12_0.0"}


def test_a_line_that_is_still_being_written_is_heard_when_it_is_whole(run_folder):
    run_folder.writer("12.0").tell(Line(1))
    (path,) = (run_folder.path / "news").iterdir()
    whole = path.read_bytes()
    reader = run_folder.reader("12.0")
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert reader.hear() == []
    path.write_bytes(whole + whole[:3])
    assert reader.hear() == [Line(1)]


@pytest.mark.parametrize("every", [1, 7, 100])
def test_what_was_read_is_deleted_and_nothing_is_skipped(run_folder, monkeypatch, every):
    monkeypatch.setattr(folder, "SEGMENT", 200)
    writer, reader = run_folder.writer("12.0"), run_folder.reader("12.0")
    heard = []
    for number in range(100):
        writer.tell(Line(number))
        if number % every == every - 1:
            heard += reader.hear()
            assert len(os.listdir(run_folder.path / "news")) <= 2
    assert [*heard, *reader.hear()] == [Line(number) for number in range(100)]


def test_the_newest_of_a_job_is_that_which_was_queued_last():
    holders = {"12_1.0", "12_1.2", "12_1.10", "12_10.11", "112_1.12", "12.3"}
    assert [newest(holders, job) for job in ("12_1", "12_10", "12", "2", "")] == ["12_1.10", "12_10.11", "12.3", "", ""]


def test_roles_of_any_name_have_files():
    assert place_of("a/b %", 3) == "a%2Fb%20%25.3"
