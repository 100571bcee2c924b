"""Long work: devices, balances and scrubs, watched and cancelled."""

import os
import threading

import pytest

import larder

MIB = 1 << 20


@pytest.fixture
def filled(fs):
    """A file system with something to move."""
    for number in range(20):
        fs.write_bytes(f"/{number}", os.urandom(4 * MIB))
    fs.sync()
    return fs


def contents(fs):
    return {name: fs.read_bytes(name) for name in fs.listdir("/")}


def again_until(work, is_so):
    """Does work again while it was over before anyone looked."""
    while True:
        done = work()
        if is_so(done):
            return done


def test_everything_that_is_long_tells_how_far_it_is(filled, tmp_path):
    before, seen = contents(filled), []

    def progress(job):
        assert 0 <= job.done_bytes and job.duration >= 0 and job.started > 1.7e9
        assert repr(job).startswith("<larder.Job ") and not job.paused
        assert job.limit in (None, 100 * MIB)
        # Fast enough to be seen, slow enough to be seen more than once.
        job.limit = 100 * MIB if len(seen) < 3 else None
        seen.append((job.kind, job.device))

    [scrubbed] = again_until(lambda: filled.scrub(progress=progress), lambda _: seen)
    assert (scrubbed.device, scrubbed.state, scrubbed.uncorrectable) == (1, "finished", 0)
    assert scrubbed.scrubbed >= 80 * MIB and "finished" in repr(scrubbed)
    assert filled.add_device(tmp_path / "second.img", size=300 * MIB) == 2
    assert [device.id for device in filled.devices()] == [1, 2]
    balanced = again_until(
        lambda: filled.balance(data="profiles=single", progress=progress),
        lambda _: ("balance", None) in seen,
    )
    assert balanced.state == "finished" and balanced.completed == balanced.expected > 0
    assert balanced.copied >= 80 * MIB and "out of" in repr(balanced)
    moved = filled.remove_device(1, progress=progress)
    assert moved.damaged == moved.unreadable == 0 and "damaged" in repr(moved)
    target = tmp_path / "target.img"
    assert filled.replace_device(2, target, size=300 * MIB, progress=progress).copied > 0
    filled.resize_device(2, 290 * MIB, progress=progress)
    [device] = filled.devices()
    assert (device.id, device.path, device.total) == (2, str(target), 290 * MIB)
    filled.resize_device(2, "max")
    assert filled.devices()[0].total == 300 * MIB
    filled.resize_device(2, "min")
    assert filled.devices()[0].total < 100 * MIB and "target.img" in repr(filled.devices()[0])
    assert contents(filled) == before and filled.jobs() == []
    assert {("scrub", 1), ("balance", None)} <= set(seen)
    filled.close()
    report = larder.check(target, data=True)
    assert report, str(report)
    larder.mkfs(tmp_path / "disk.img", size=256 * MIB, force=True)


def test_a_callback_that_raises_cancels_the_work(filled):
    class Enough(Exception):
        pass

    def progress(job):
        job.limit = MIB
        raise Enough

    for work in filled.scrub, filled.balance:
        with pytest.raises(Enough):
            again_until(lambda: work(progress=progress), lambda _: False)
    assert filled.jobs() == [] and not filled.cancel_balance()


def test_another_thread_cancels_and_pauses(filled):
    def work_while(work, act):
        """The result of work, to whose job another thread does something."""
        is_over = threading.Event()

        def wait():
            while not is_over.is_set():
                for job in filled.jobs():
                    job.limit = MIB
                    act(job)

        thread = threading.Thread(target=wait)
        thread.start()
        done = work()
        is_over.set()
        thread.join()
        return done

    [scrubbed] = again_until(
        lambda: work_while(filled.scrub, lambda job: job.cancel()),
        lambda scrubs: scrubs[0].state == "cancelled",
    )
    assert scrubbed.scrubbed < 80 * MIB
    again_until(
        lambda: work_while(filled.balance, lambda job: filled.pause_balance()),
        lambda balanced: balanced.state == "paused",
    )
    with pytest.raises(OSError, match="a balance was begun"):
        filled.resize_device(1, "min")
    assert filled.resume_balance().state == "finished"
    assert filled.resume_balance() is None and not filled.pause_balance()


def test_closing_ends_jobs(image):
    with larder.open(image, write=True) as fs:
        fs.write_bytes("/file", os.urandom(40 * MIB))
        fs.sync()

        def progress(job):
            job.limit = MIB
            fs.close()

        again_until(
            lambda: fs.scrub(progress=progress), lambda scrubs: scrubs[0].state == "cancelled"
        )
        with pytest.raises(ValueError, match="closed"):
            fs.jobs()


def test_what_makes_no_sense_is_refused(fs, tmp_path):
    for filters in ["usage=101", "color=red", "soft"]:
        with pytest.raises(ValueError):
            fs.balance(data=filters)
    with pytest.raises(ValueError, match="neither"):
        fs.resize_device(1, "large")
    with pytest.raises(ValueError, match="no device 7"):
        fs.resize_device(7, "max")
    with pytest.raises(OSError, match="only device"):
        fs.remove_device(1)
    with pytest.raises(FileNotFoundError) as caught:
        fs.add_device(tmp_path / "none")
    assert caught.value.filename == str(tmp_path / "none")
    assert not fs.cancel_replace()
    with pytest.raises(OSError, match="no replace is unfinished"):
        fs.resume_replace()
