"""Exceptions are those of `os`."""

import errno
import os

import pytest

import larder


def fails(call, *arguments, **named):
    with pytest.raises(OSError) as raised:
        call(*arguments, **named)
    return raised.value


def test_the_same_calls_raise_what_os_raises(fs, tmp_path):
    """Each call fails on a directory of this system and in the image, with one outcome."""
    for make in (os.mkdir, fs.mkdir):
        above = str(tmp_path) if make is os.mkdir else ""
        make(f"{above}/full")
        make(f"{above}/full/inside")
    (tmp_path / "file").write_text("bread")
    fs.write_text("/file", "bread")
    os.symlink("loop", tmp_path / "loop")
    fs.symlink("loop", "/loop")
    cases = [
        ("stat", "none", FileNotFoundError),
        ("stat", "file/below", NotADirectoryError),
        ("stat", "loop", OSError),
        ("stat", "x" * 256, OSError),
        ("listdir", "none", FileNotFoundError),
        ("listdir", "file", NotADirectoryError),
        ("mkdir", "full", FileExistsError),
        ("mkdir", "none/new", FileNotFoundError),
        ("rmdir", "full", OSError),
        ("rmdir", "file", NotADirectoryError),
        ("remove", "full", IsADirectoryError),
        ("remove", "none", FileNotFoundError),
        ("readlink", "file", OSError),
        ("readlink", "none", FileNotFoundError),
    ]
    for name, path, expected in cases:
        theirs = fails(getattr(os, name), str(tmp_path / path))
        ours = fails(getattr(fs, name), f"/{path}")
        assert type(ours) is type(theirs) is expected, (name, path, ours)
        assert ours.errno == theirs.errno, (name, path)
        assert ours.filename == f"/{path}" and ours.strerror, (name, path)
        assert os.strerror(ours.errno).split(":")[0] in str(ours) or ours.strerror
    for name in ("rename", "link"):
        theirs = fails(getattr(os, name), tmp_path / "none", tmp_path / "new")
        ours = fails(getattr(fs, name), "/none", "/new")
        assert type(ours) is type(theirs) and ours.errno == theirs.errno
        assert (ours.filename, ours.filename2) == ("/none", "/new")
    assert fails(fs.rmdir, "/full").errno == errno.ENOTEMPTY
    assert fails(fs.getxattr, "/file", "user.none").errno == errno.ENODATA
    assert type(fails(fs.open, "/full", "w")) is IsADirectoryError
    assert type(fails(fs.open, "/none")) is FileNotFoundError


def test_what_may_not_be_changed(image):
    with larder.open(image, write=True) as fs:
        fs.mkdir("/d")
        fs.snapshot("/", "/snapshot", read_only=True)
        assert fails(fs.mkdir, "/snapshot/x").errno == errno.EROFS
    with larder.open(image) as fs:
        assert fails(fs.mkdir, "/x").errno == errno.EROFS


def test_damage_is_told_from_other_errors(tmp_path):
    image = tmp_path / "disk.img"
    larder.mkfs(image, size=256 << 20)
    content = os.urandom(64 << 10)
    with larder.open(image, write=True) as fs:
        fs.mkdir("/d")
        fs.write_bytes("/d/file", content)
    data = bytearray(image.read_bytes())
    at = data.index(content[:4096])
    data[at] ^= 1
    image.write_bytes(data)
    with larder.open(image) as fs:
        error = fails(fs.read_bytes, "/d/file")
        assert type(error) is larder.DamageError and isinstance(error, OSError)
        assert error.errno == errno.EIO and error.filename == "/d/file"
        error = fails(fs.copy_out, "/d", tmp_path / "out")
        assert type(error) is larder.DamageError
        assert (error.filename, error.filename2) == ("/d/file", str(tmp_path / "out/file"))
        assert type(fails(fs.stat, "/none")) is FileNotFoundError
    image.write_bytes(b"no btrfs" * 1_000_000)
    assert isinstance(fails(larder.open, image), OSError)
