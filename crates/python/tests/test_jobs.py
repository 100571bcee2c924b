"""Devices, balances and scrubs: what makes no sense is refused."""

import pytest

import larder

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
