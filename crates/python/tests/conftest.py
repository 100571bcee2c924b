"""Images to test with."""

import subprocess

import pytest

import larder


@pytest.fixture
def image(tmp_path):
    """A new, empty image."""
    path = tmp_path / "disk.img"
    larder.mkfs(path, size=256 << 20, label="pantry")
    return path


@pytest.fixture
def fs(image):
    """The file system in it, open for writing. It must be sound in the end."""
    with larder.open(image, write=True) as fs:
        yield fs
    report = larder.check(image, data=True)
    assert report, str(report)


@pytest.fixture
def mounted(image, tmp_path):
    """A function that mounts the image with the kernel, where it stays until the test ends."""
    point = tmp_path / "mnt"

    def mount(*options):
        point.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", ",".join(["loop", *options]), image, point], check=True)
        return point

    yield mount
    while point.is_mount():
        subprocess.run(["umount", point], check=True)
