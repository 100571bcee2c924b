"""Extents, and what they take."""

import subprocess

import pytest

import larder

MIB = 1 << 20


def test_extents_are_those_of_the_kernel(image, mounted):
    with larder.open(image, write=True) as fs:
        fs.write_bytes("/small", b"bread")
        with fs.open("/file", "wb") as file:
            file.write(b"x" * MIB)
            file.seek(3 * MIB)
            file.write(b"y" * 8192)
        fs.copy("/file", "/copy")
        fs.truncate("/copy", MIB)
        inline, = fs.extents("/small")
        assert (inline.offset, inline.kind, inline.address) == (0, "inline", None)
        ours = [(e.offset, e.length, e.address, e.shared) for e in fs.extents("/file")]
        assert [extent.kind for extent in fs.extents("/file")] == ["data"] * len(ours)
        assert fs.extents("/file")[0].disk_length >= MIB
        assert "data at 0" in repr(fs.extents("/file")[0])
        with pytest.raises(IsADirectoryError):
            fs.extents("/")
        with pytest.raises(FileNotFoundError):
            fs.extents("/none")
    assert [shared for _, _, _, shared in ours] == [True, False]
    shown = subprocess.run(
        ["filefrag", "-v", "-b1", mounted("ro") / "file"], check=True, capture_output=True,
        text=True,
    ).stdout
    theirs = []
    for line in shown.splitlines():
        fields = line.replace("..", ":").split(":")
        if len(fields) >= 6 and fields[0].strip().isdigit():
            start, end, address = int(fields[1]), int(fields[2]), int(fields[3])
            theirs.append((start, end - start + 1, address, "shared" in fields[-1]))
    assert ours == theirs


def test_compressed_extents_say_so(image):
    with larder.open(image, write=True, compression="zstd") as fs:
        fs.write_bytes("/file", b"bread" * MIB)
        extents = fs.extents("/file")
    assert {extent.compression for extent in extents} == {"zstd"}
    assert sum(extent.length for extent in extents) == 5 * MIB
    assert sum(extent.disk_length for extent in extents) < MIB


def test_du_counts_as_btrfs_does(image, mounted):
    with larder.open(image, write=True) as fs:
        fs.makedirs("/d/deep")
        fs.write_bytes("/d/alone", b"a" * MIB)
        fs.write_bytes("/d/deep/file", b"b" * MIB)
        fs.copy("/d/deep/file", "/d/copy")
        fs.link("/d/alone", "/d/link")
        fs.create_subvolume("/d/sub")
        fs.write_bytes("/d/sub/file", b"c" * MIB)
        fs.snapshot("/d/sub", "/snapshot")
        assert fs.du("/d") == larder.DataUse(4 * MIB, MIB, 2 * MIB)
        assert fs.du("/d/alone") == (MIB, MIB, 0)
        assert fs.du() == (5 * MIB, MIB, 2 * MIB)
        with pytest.raises(FileNotFoundError):
            fs.du("/none")
        expected = fs.du("/d")
    shown = subprocess.run(
        ["btrfs", "filesystem", "du", "-s", "--raw", mounted("ro") / "d"], check=True,
        capture_output=True, text=True,
    ).stdout
    assert tuple(int(word) for word in shown.splitlines()[1].split()[:3]) == expected


def test_space_usage_is_by_purpose(fs):
    fs.write_bytes("/file", b"x" * MIB)
    fs.sync()
    spaces = {space.kind: space for space in fs.space_usage()}
    assert spaces.keys() == {"data", "metadata", "system"}
    assert spaces["data"].profile == "single" and spaces["metadata"].profile == "dup"
    assert spaces["data"].used >= MIB and spaces["data"].total >= spaces["data"].used
    assert spaces["metadata"].raw == 2 * spaces["metadata"].total
    assert "data" in repr(spaces["data"])
