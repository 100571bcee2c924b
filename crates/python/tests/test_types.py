"""What the types say is what the module has."""

import ast
import inspect
import io
import pathlib

import larder
from larder import _larder

STUBS = ast.parse(pathlib.Path(_larder.__file__).with_name("_larder.pyi").read_text())


def parameters(function):
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def test_the_stubs_name_all_there_is():
    shown = {node.name for node in STUBS.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    shown = {name for name in shown if name not in ("_Reader", "_Writer")}
    assert shown | {"__version__"} == {
        name for name in vars(_larder) if not name.startswith("__") or name == "__version__"
    }
    for node in STUBS.body:
        if isinstance(node, ast.FunctionDef):
            found = inspect.signature(getattr(_larder, node.name))
            assert parameters(node) == list(found.parameters), node.name
        elif isinstance(node, ast.ClassDef) and node.name in shown:
            check_class(node, getattr(_larder, node.name))


def check_class(node, found):
    methods = {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}
    public = {name for name in vars(found) if not name.startswith("__")}
    assert {name for name in methods if not name.startswith("__")} == public, node.name
    for name in public:
        method = getattr(found, name)
        if callable(method):
            there = [it for it in inspect.signature(method).parameters if it != "self"]
            assert parameters(methods[name]) == there, f"{node.name}.{name}"


def test_everything_public_says_what_it_does():
    for name in larder.__all__:
        thing = getattr(larder, name)
        assert inspect.getdoc(thing), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            is_of_io = thing is larder.FileIO and hasattr(io.RawIOBase, member)
            if callable(value) and not member.startswith("_") and not is_of_io:
                assert inspect.getdoc(value), f"{name}.{member}"
    assert larder.__version__
