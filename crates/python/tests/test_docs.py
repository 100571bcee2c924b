"""The examples in docs/python.md work, in their order."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_the_examples_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert len(examples) > 4
    names = {}
    for example in examples:
        try:
            exec(example, names)
        except Exception as error:
            pytest.fail(f"{type(error).__name__}: {error}\n{example}")
