"""Subvolumes, streams, making, checking: what btrfs has and other file systems have not."""

import errno
import io
import os
import signal
import subprocess

import pytest

import larder


def test_snapshots(fs):
    fs.create_subvolume("/sub")
    fs.write_bytes("/sub/file", b"old")
    fs.snapshot("/sub", "/before", read_only=True)
    fs.snapshot("/", "/sub/all")
    fs.write_bytes("/sub/file", b"new")
    assert fs.read_bytes("/before/file") == b"old"
    with pytest.raises(OSError) as raised:
        fs.write_bytes("/before/file", b"new")
    assert raised.value.errno == errno.EROFS
    found = {info.path: info for info in fs.subvolumes()}
    assert set(found) == {"/sub", "/before", "/sub/all"}
    assert found["/before"].is_read_only and found["/before"].is_snapshot
    assert found["/before"].parent_uuid == found["/sub"].uuid == fs.subvolume("/sub").uuid
    assert found["/sub"].received_uuid is None and found["/sub"].created > 1_700_000_000
    assert fs.subvolume().id == 5 and fs.subvolume().path == "/"
    with pytest.raises(OSError):
        fs.subvolume("/sub/file")
    fs.set_read_only("/before", False)
    fs.write_bytes("/before/file", b"new")
    fs.delete_subvolume("/before")
    assert "before" not in fs.listdir()


def test_paths_start_at_a_subvolume(image):
    with larder.open(image, write=True) as fs:
        fs.create_subvolume("/home")
        fs.write_bytes("/home/file", b"data")
        number = fs.subvolume("/home").id
        fs.set_default_subvolume("/home")
    for subvolume in (None, number, "/home", b"home"):
        with larder.open(image, subvolume=subvolume) as fs:
            assert fs.listdir() == ["file"]
            assert fs.subvolume().path == "/home"
    with larder.open(image, subvolume="/") as fs:
        assert fs.listdir() == ["home"]
    with pytest.raises(FileNotFoundError):
        larder.open(image, subvolume=999)


def test_streams(fs, tmp_path):
    fs.create_subvolume("/sub")
    fs.write_bytes("/sub/file", os.urandom(3 << 20))
    fs.snapshot("/sub", "/one", read_only=True)
    fs.write_bytes("/sub/more", b"more")
    fs.snapshot("/sub", "/two", read_only=True)
    with open(tmp_path / "stream", "wb") as file:
        assert fs.send("/one", file) == file.tell() > 3 << 20
    difference = io.BytesIO()
    assert fs.send("/two", difference, parent="/one") == len(difference.getvalue()) < 10_000
    other = tmp_path / "other.img"
    larder.mkfs(other, size=256 << 20)
    with larder.open(other, write=True) as copy:
        copy.mkdir("/received")
        with open(tmp_path / "stream", "rb") as file:
            assert copy.receive(file, "/received") == ["one"]
        difference.seek(0)
        assert copy.receive(difference, "/received") == ["two"]
        for path in ("/one/file", "/two/file", "/two/more"):
            assert copy.read_bytes("/received" + path) == fs.read_bytes(path)
        assert copy.subvolume("/received/one").received_uuid == fs.subvolume("/one").uuid
    assert larder.check(other, data=True)
    with pytest.raises(PermissionError):
        fs.send("/sub", io.BytesIO())
    for wrong in (b"", b"no stream at all"):
        with pytest.raises(OSError) as raised:
            fs.receive(io.BytesIO(wrong))
        assert raised.value.errno == errno.EINVAL
    with pytest.raises(ValueError):
        fs.send("/one", io.BytesIO(), version=9)


def test_what_a_stream_raises_is_raised(fs):
    fs.snapshot("/", "/one", read_only=True)

    class Broken:
        calls = 0

        def write(self, data):
            self.calls += 1
            raise LookupError("full")

        def read(self, size):
            return "text"

    broken = Broken()
    with pytest.raises(LookupError, match="full"):
        fs.send("/one", broken)
    assert broken.calls == 1
    broken.write = lambda data: len(data) + 1
    with pytest.raises(ValueError, match="more than"):
        fs.send("/one", broken)
    broken.read = lambda size: bytes(size + 1)
    with pytest.raises(ValueError, match="more than"):
        fs.receive(broken)
    broken.read = lambda size: "text"
    with pytest.raises(TypeError):
        fs.receive(Broken())
    with pytest.raises(AttributeError):
        fs.send("/one", None)


def test_ctrl_c_ends_a_send(fs):
    fs.write_bytes("/data", bytes(8 << 20))
    fs.snapshot("/", "/one", read_only=True)

    class Endless:
        """Says that nothing was written yet, until the signal has come."""

        def write(self, data):
            os.kill(os.getpid(), signal.SIGINT)
            return 1

    with pytest.raises(KeyboardInterrupt):
        fs.send("/one", Endless())
    assert fs.read_bytes("/data") == bytes(8 << 20)


def test_making(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_bytes(b"data")
    path = tmp_path / "new.img"
    summary = larder.mkfs(
        path,
        size=200 << 20,
        label="pantry",
        root_dir=source,
        checksum="xxhash",
        compression="zstd",
        uuid="01234567-89ab-cdef-0123-456789abcdef",
    )
    assert summary.uuid == "01234567-89ab-cdef-0123-456789abcdef" and "pantry" in str(summary)
    assert summary.total_bytes == path.stat().st_size == 200 << 20
    with larder.open(path, write=True) as fs:
        assert (fs.label, fs.uuid) == ("pantry", summary.uuid)
        assert fs.read_bytes("/file") == b"data"
        total, used, free = fs.disk_usage()
        assert total > free > 0 and used > 0
        fs.label = "cellar"
        assert fs.label == "cellar"
    with pytest.raises(FileExistsError):
        larder.mkfs(path)
    with pytest.raises(FileNotFoundError):
        larder.mkfs(tmp_path / "none.img")
    with pytest.raises(OSError) as raised:
        larder.mkfs(tmp_path / "small.img", size=1 << 20)
    assert raised.value.errno == errno.ENOSPC and not (tmp_path / "small.img").exists()
    wrong = [{"checksum": "md5"}, {"features": "odd"}, {"data_profile": "raid2"}, {"uuid": "x"}]
    for options in wrong:
        with pytest.raises(ValueError):
            larder.mkfs(tmp_path / "wrong.img", size=200 << 20, **options)


def test_several_devices(tmp_path):
    paths = [tmp_path / "one.img", tmp_path / "two.img"]
    larder.mkfs(paths, size=200 << 20, data_profile="raid1", metadata_profile="raid1")
    with larder.open(paths, write=True) as fs:
        fs.write_bytes("/file", b"data")
    with pytest.raises(FileNotFoundError):
        larder.open(paths[1])
    with larder.open(iter(paths[1:]), degraded=True) as fs:
        assert fs.read_bytes("/file") == b"data"


def test_findings(image):
    with larder.open(image, write=True) as fs:
        fs.write_bytes("/file", b"needle" * 1000)
    report = larder.check(image)
    assert report and report.count == 0 and report.findings == [] and "no findings" in str(report)
    with open(image, "r+b") as file:
        at = file.read().index(b"needle" * 100)
        file.seek(at)
        file.write(b"x")
    report = larder.check(image, data=True)
    (finding,) = report.findings
    assert not report and report.count == 1
    assert finding.kind == "data-checksum" and finding.severity == "error" and finding.message
    assert any("file" in path for path in finding.paths) and str(image) in finding.devices[0]
    assert str(finding) in str(report)
    with larder.open(image) as fs, pytest.raises(OSError) as raised:
        fs.read_bytes("/file")
    assert raised.value.errno == errno.EIO


def test_the_kernel_reads_what_python_writes(fs, image, mounted):
    """And Python reads what the kernel writes."""
    fs.makedirs("/a/b")
    contents = {
        "/small": b"x",
        "/a/large": os.urandom(5 << 20),
        "/a/b/bütter": b"",
        "/a/\udcff": b"y",
    }
    for path, data in contents.items():
        fs.write_bytes(path, data)
    fs.symlink("../small", "/a/link")
    fs.link("/small", "/a/again")
    fs.setxattr("/small", "user.mime", b"text/plain")
    fs.chmod("/small", 0o640)
    fs.utime("/small", ns=(1_000_000_007, 2_000_000_009))
    fs.snapshot("/", "/snapshot", read_only=True)
    fs.remove("/a/again")
    ours = {path: fs.lstat(path) for path in [*contents, "/a", "/a/link"]}
    fs.close()
    point = mounted()
    for path, data in contents.items():
        assert (point / path[1:]).read_bytes() == data
    for path, found in ours.items():
        theirs = os.lstat(point / path[1:])
        for field in "mode ino nlink uid gid size mtime_ns ctime_ns blocks".split():
            name = f"st_{field}"
            assert getattr(found, name) == getattr(theirs, name), (path, name)
    assert os.readlink(point / "a/link") == "../small"
    assert os.getxattr(point / "small", "user.mime") == b"text/plain"
    assert not (point / "a/again").exists()
    assert (point / "snapshot/a/again").read_bytes() == b"x"
    with pytest.raises(OSError):
        (point / "snapshot/a/new").mkdir()
    (point / "kernel").write_bytes(b"from the kernel")
    subprocess.run(["umount", point], check=True)
    with larder.open(image) as fs:
        assert fs.read_bytes("/kernel") == b"from the kernel"
        assert [name for name in fs.listdir() if name == "snapshot"] == ["snapshot"]


def test_only_synced_files_are_in_a_log(image, tmp_path):
    """A copy of the image while it is in use is what a power cut leaves."""
    with larder.open(image, write=True, commit_interval=None) as fs:
        fs.write_bytes("/lost", b"data")
        with fs.open("/kept", "wb") as file:
            file.write(b"data")
            file.flush()
            file.raw.sync()
        fs.write_bytes("/also", b"data")
        fs.fsync("/also")
        subprocess.run(["cp", "--sparse=always", image, tmp_path / "cut.img"], check=True)
    with larder.open(tmp_path / "cut.img") as fs:
        assert fs.needs_log_replay and fs.listdir() == []
    with larder.open(tmp_path / "cut.img", write=True) as fs:
        assert fs.read_bytes("/kept") == fs.read_bytes("/also") == b"data"
        assert not fs.exists("/lost")
