"""Files as streams."""

import io
import os
import random
import subprocess
import sys
import threading

import pytest

import larder


def test_text_is_written_and_read_by_lines(fs):
    with fs.open("/notes.txt", "w") as file:
        print("bread", "bütter", sep="\n", file=file)
    with fs.open("notes.txt") as file:
        assert [line for line in file] == ["bread\n", "bütter\n"]
    assert fs.read_text("/notes.txt") == "bread\nbütter\n"
    assert fs.write_text("/notes.txt", "a\n", newline="\r\n") == 2
    assert fs.read_bytes("/notes.txt") == b"a\r\n"


def test_streams_do_what_those_of_io_do(fs, tmp_path):
    """The same calls on a file of ours and of the system's, with buffers and without."""
    choose = random.Random(1)
    for buffering in (0, 512, -1):
        ours = fs.open("/ours", "w+b", buffering=buffering)
        theirs = open(tmp_path / "theirs", "w+b", buffering=buffering)
        assert isinstance(ours, type(theirs)) or buffering == 0
        for _ in range(300):
            at, data = choose.randrange(20_000), choose.randbytes(choose.randrange(9_000))
            call = choose.choice(["write", "read", "truncate", "seek", "readline", "readinto"])
            for file in (ours, theirs):
                file.seek(at, os.SEEK_END if call == "seek" else os.SEEK_SET)
            results = []
            for file in (ours, theirs):
                if call == "write":
                    results.append((file.write(data), file.tell()))
                elif call == "truncate":
                    results.append((file.truncate(), file.tell()))
                elif call == "readinto":
                    buffer = bytearray(len(data))
                    results.append((file.readinto(buffer), buffer))
                elif call == "seek":
                    results.append(file.tell())
                else:
                    results.append(getattr(file, call)(len(data)))
            assert results[0] == results[1], call
        for file in (ours, theirs):
            file.close()
        assert fs.read_bytes("/ours") == (tmp_path / "theirs").read_bytes()


def test_modes(fs):
    with fs.open("/new", "xb") as file:
        file.write(b"one")
    with pytest.raises(FileExistsError):
        fs.open("/new", "x")
    with fs.open("/new", "ab") as file:
        assert file.tell() == 3
        file.seek(0)
        file.write(b" two")
    with fs.open("/new", "r+b") as file:
        file.write(b"ONE")
        file.seek(0)
        assert file.read() == b"ONE two"
    with fs.open("/new", "rb", buffering=0) as file:
        assert (file.readable(), file.writable(), file.seekable()) == (True, False, True)
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    with fs.open("/new", "wb", buffering=0) as file, pytest.raises(io.UnsupportedOperation):
        file.read()
    assert fs.stat("/new").st_size == 0
    for wrong in ("", "rw", "z", "rbt", "r++"):
        with pytest.raises(ValueError):
            fs.open("/new", wrong)
    with pytest.raises(ValueError):
        fs.open("/new", "rb", encoding="utf-8")
    with pytest.raises(IsADirectoryError):
        fs.open("/", "rb")
    with pytest.raises(FileNotFoundError):
        fs.open("/none", "r+")


def test_any_buffer_can_be_written(fs):
    numbers = memoryview(bytes(range(16))).cast("I")
    with fs.open("/numbers", "wb", buffering=0) as file:
        assert file.write(numbers) == 16
        with pytest.raises(TypeError):
            file.write("text")
    target = memoryview(bytearray(16)).cast("I")
    with fs.open("/numbers", "rb", buffering=0) as file:
        assert file.readinto(target) == 16
        with pytest.raises((TypeError, BufferError)):
            file.seek(0)
            file.readinto(bytes(4))
    assert bytes(target) == bytes(range(16))


def test_large_files_and_holes(fs):
    data = random.Random(2).randbytes(20 << 20)
    fs.write_bytes("/large", data)
    assert fs.read_bytes("/large") == data
    fs.write_bytes("/hole", b"")
    fs.truncate("/hole", 1 << 40)
    assert fs.stat("/hole").st_size == 1 << 40 and fs.stat("/hole").st_blocks == 0
    with fs.open("/hole", "rb") as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == bytes(3)
    with fs.open("/hole", "r+b", buffering=0) as file, pytest.raises(OSError):
        file.truncate(1 << 63)


def test_closing_the_file_system_flushes_its_files(image):
    fs = larder.open(image, write=True)
    binary, text = fs.open("/binary", "wb"), fs.open("/text", "w")
    binary.write(b"waits in a buffer")
    text.write("so does this")
    fs.close()
    fs.close()
    assert binary.closed and text.closed and fs.closed
    for call in (fs.sync, fs.listdir, lambda: fs.open("/text"), lambda: fs.label):
        with pytest.raises(ValueError):
            call()
    with larder.open(image) as fs:
        assert fs.read_bytes("/binary") == b"waits in a buffer"
        assert fs.read_text("/text") == "so does this"


def test_what_was_written_before_an_exception_stays(image):
    with pytest.raises(KeyError), larder.open(image, write=True) as fs:
        fs.write_bytes("/kept", b"data")
        raise KeyError
    with larder.open(image) as fs:
        assert fs.read_bytes("/kept") == b"data"


def test_an_unclosed_file_system_warns_and_loses_nothing(image):
    with pytest.warns(ResourceWarning):
        fs = larder.open(image, write=True)
        fs.write_bytes("/kept", b"data")
        del fs
    with larder.open(image, write=True) as fs:
        assert fs.read_bytes("/kept") == b"data"


def test_a_file_keeps_its_file_system(image):
    with larder.open(image, write=True) as fs:
        fs.write_bytes("/data", b"data")
    with larder.open(image).open("/data", "rb") as file:
        assert file.read() == b"data"


def test_threads_read_and_write_at_once(fs):
    contents = {f"/{n}": random.Random(n).randbytes(3 << 20) for n in range(8)}
    failed = []

    def work(path, data):
        try:
            with fs.open(path, "wb") as file:
                for at in range(0, len(data), 100_000):
                    file.write(data[at : at + 100_000])
            for _ in range(3):
                assert fs.read_bytes(path) == data
            fs.sync()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=item) for item in contents.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(fs.listdir()) == sorted(path[1:] for path in contents)


def test_a_forked_process_changes_nothing(fs, image):
    """It has a copy of what is open, but not the threads of the library."""
    file = fs.open("/data", "wb", buffering=0)
    file.write(b"of the parent")
    child = os.fork()
    if child == 0:
        try:
            for call in (
                lambda: file.write(b"of the child"),
                lambda: fs.write_bytes("/child", b""),
                lambda: fs.sync(),
                lambda: list(fs.scandir()),
            ):
                with pytest.raises(ValueError, match="forked"):
                    call()
            assert fs.closed
            file.close()
            fs.close()
            with larder.open(image) as again:
                assert not again.exists("/child")
            os._exit(42)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    file.write(b", still")
    file.close()
    assert fs.read_bytes("/data") == b"of the parent, still"
    assert fs.listdir() == ["data"]


def test_a_forked_interpreter_ends(tmp_path):
    """At its end it drops what it has of a file system that is open elsewhere."""
    image = tmp_path / "disk.img"
    larder.mkfs(image, size=256 << 20)
    script = """
import os, sys, larder
fs = larder.open(sys.argv[1], write=True)
file = fs.open("/data", "wb", buffering=0)
file.write(b"data")
if os.fork() == 0:
    del file, fs
    sys.exit(42)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 42
file.close()
fs.close()
"""
    command = [sys.executable, "-W", "error", "-c", script, image]
    assert subprocess.run(command, stderr=subprocess.PIPE).stderr == b""
    with larder.open(image) as fs:
        assert fs.read_bytes("/data") == b"data"
    assert larder.check(image, data=True)


def test_other_threads_run_during_a_call(fs):
    """A reader that writes to a Python object waits for another thread, which must get its turn."""
    fs.write_bytes("/data", b"x" * 100_000)
    fs.snapshot("/", "/snapshot", read_only=True)
    came, go = threading.Event(), threading.Event()

    class Output:
        def write(self, data):
            came.set()
            assert go.wait(60)

    sender = threading.Thread(target=fs.send, args=("/snapshot", Output()))
    sender.start()
    assert came.wait(60)
    assert fs.read_bytes("/data") == b"x" * 100_000
    go.set()
    sender.join()
