"""Ctrl-C during calls that do not come back to Python until they are done."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest

import larder

DATA_BYTES = 128 << 20

CHILD = """
import signal, sys
import larder

def handler(number, frame):
    print("handled", flush=True)
    raise KeyboardInterrupt

def bytes_read():
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])

signal.signal(signal.SIGINT, handler)
before = bytes_read()
try:
    {call}
except KeyboardInterrupt:
    print(bytes_read() - before)
"""


class Lease:
    """Lets whoever opens a file wait."""

    def __init__(self, path):
        self.file = open(path, "r+b")
        fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def holds(self):
        """Whether nobody has tried to open the file yet."""
        return fcntl.fcntl(self.file, fcntl.F_GETLEASE) == fcntl.F_WRLCK

    def end(self):
        fcntl.fcntl(self.file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


@pytest.fixture
def lease():
    """A function that takes the lease of a file."""
    # The kernel tells with this signal that the file is wanted.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with contextlib.ExitStack() as stack:

        def take(path):
            taken = Lease(path)
            stack.enter_context(taken.file)
            return taken

        yield take
    signal.signal(signal.SIGIO, before)


def interrupt(lease, call, *arguments):
    """Makes the call in another process, and sends SIGINT while it waits for the leased file.
    Returns how many bytes the call has read when it raises KeyboardInterrupt.
    """
    command = [sys.executable, "-c", CHILD.format(call=call), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + 60
            while lease.holds():
                assert child.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            # The call still waits, but Python's handler runs.
            assert child.stdout.readline() == "handled\n"
            lease.end()
            output, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode == 0
    return int(output)


@pytest.mark.parametrize("threads", [0, 1])
def test_ctrl_c_ends_a_check(image, lease, threads):
    with larder.open(image, write=True) as fs:
        fs.write_bytes("/data", os.urandom(DATA_BYTES))
    call = f"larder.check(sys.argv[1], data=True, threads={threads})"
    assert interrupt(lease(image), call, image) < DATA_BYTES
    report = larder.check(image, data=True, threads=threads)
    assert report and report.verified_bytes >= DATA_BYTES


def test_ctrl_c_ends_a_mkfs_and_leaves_no_image(tmp_path, lease):
    source, old, new = tmp_path / "source", tmp_path / "old.img", tmp_path / "new.img"
    source.mkdir()
    (source / "data").write_bytes(os.urandom(DATA_BYTES))
    old.touch()
    call = "larder.mkfs([sys.argv[1], sys.argv[2]], size=512 << 20, root_dir=sys.argv[3])"
    assert interrupt(lease(old), call, new, old, source) < DATA_BYTES
    assert not new.exists() and old.stat().st_size == 0
    larder.mkfs([new, old], size=512 << 20, root_dir=source)
    assert larder.check([new, old], data=True)


def test_other_signals_end_nothing(image, lease):
    """A handler that raises nothing runs during the call, which goes on."""
    call = """signal.signal(signal.SIGINT, lambda *_: print("handled", flush=True))
    report = larder.check(sys.argv[1])
    print(report.count)"""
    assert interrupt(lease(image), call, image) == 0
