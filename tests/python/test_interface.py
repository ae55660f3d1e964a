"""Names, signatures and stubs of the package."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import megamoe
import pytest
from megamoe import _core

FOLDER = Path(megamoe.__file__).parent
STUB = ast.parse((FOLDER / "_core.pyi").read_text())


def public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def stub_names(body) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return public(node.name for node in body if isinstance(node, kinds))


def test_stub_and_module_have_the_same_names():
    assert stub_names(STUB.body) == public(dir(_core))


@pytest.mark.parametrize(
    "node", [n for n in STUB.body if isinstance(n, ast.ClassDef)], ids=lambda n: n.name
)
def test_stub_and_classes_have_the_same_members(node):
    assert stub_names(node.body) == public(vars(getattr(_core, node.name)))
    for member in node.body:
        found = inspect.getattr_static(getattr(_core, node.name), member.name)
        is_property = any(getattr(d, "id", "") == "property" for d in member.decorator_list)
        assert is_property == isinstance(found, property), member.name


def stub_functions():
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        else:
            for member in getattr(node, "body", []):
                operator = getattr(member, "name", "") in ("__eq__", "__hash__")
                if (
                    isinstance(member, ast.FunctionDef)
                    and not member.decorator_list
                    and not operator
                ):
                    yield f"{node.name}.{member.name}", member


@pytest.mark.parametrize(("name", "node"), list(stub_functions()), ids=lambda v: str(v)[:40])
def test_stub_and_functions_have_the_same_parameters(name, node):
    owner = _core
    for part in name.split("."):
        owner = getattr(owner, part)
    # The compiled function states its signature in the first line of its documentation.
    text = owner.__doc__ or ""
    if name == "Group.__init__":
        text = _core.Group.__new__.__doc__ or text
    for argument in [*node.args.args, *node.args.kwonlyargs]:
        if argument.arg != "self":
            assert f"{argument.arg}:" in text, (argument.arg, text)


def test_package_is_typed_and_complete():
    assert (FOLDER / "py.typed").exists()
    assert len(set(megamoe.__all__)) == len(megamoe.__all__)
    for name in megamoe.__all__:
        assert getattr(megamoe, name).__doc__, name
    modules = {name for name in public(vars(megamoe)) if inspect.ismodule(getattr(megamoe, name))}
    assert public(vars(megamoe)) - modules == set(megamoe.__all__)
    assert megamoe.__version__ == _core.version()


SIGNATURES = {
    megamoe.Group: "(problem: 'Problem', memory: 'str' = 'host', *, devices: 'Sequence[int]' = (), "
    "name: 'str' = '', rank: 'int' = 0, deadline: 'float' = 60.0, address: 'str' = '', "
    "port: 'int' = 0, all_gather: 'Callable[[bytes], Sequence[bytes]] | None' = None, "
    "addresses: 'Sequence[int]' = (), bytes: 'int' = 0) -> 'None'",
    megamoe.Layer.stage: "(self, hidden_states: 'Array', topk_idx: 'Array', topk_weights: 'Array', *, "
    "routed_scaling: 'float' = 1.0, stream: 'Any' = None) -> 'None'",
    megamoe.Layer.forward: "(self, y: 'Array', weights: 'Weights', *, shared: 'Weights | None' = None, "
    "global_num_tokens: 'int | None' = None, num_sms: 'int' = 0, reserved_sms: 'int | None' = None, "
    "deadline: 'float' = 30.0, first_deadline: 'float | None' = None, fast_math: 'bool' = False, block_rows: 'int' = 0, "
    "recv_stats: 'Array | None' = None, stream: 'Any' = None) -> 'None'",
    megamoe.Layer.run: "(self, y: 'Array', hidden_states: 'Array', topk_idx: 'Array', "
    "topk_weights: 'Array', weights: 'Weights', *, parts: 'int' = 1, routed_scaling: 'float' = 1.0, "
    "stream: 'Any' = None, **options: 'Any') -> 'None'",
    megamoe.load_layer: "(path: 'str | os.PathLike[str]', layer: 'int', *, ranks: 'int' = 1, "
    "rank: 'int' = 0, precision: 'str | None' = None, pad: 'bool' = True, shared: 'bool' = True, "
    "progress: 'Callable[[float], None] | None' = None) -> 'LoadedLayer'",
    megamoe.Group.forward: "(self, y: 'Sequence[Array]', weights: 'Sequence[Weights]', *, "
    "shared: 'Sequence[Weights]' = (), global_num_tokens: 'int | None' = None, num_sms: 'int' = 0, "
    "reserved_sms: 'int | None' = None, deadline: 'float' = 30.0, "
    "first_deadline: 'float | None' = None, fast_math: 'bool' = False, block_rows: 'int' = 0, "
    "recv_stats: 'Array | None' = None, streams: 'Sequence[Any] | None' = None) -> 'None'",
    megamoe.prepare_weights: "(precision: 'str', w1: 'Array', w2: 'Array', "
    "w1_scales: 'Array | None' = None, w2_scales: 'Array | None' = None, *, "
    "b1: 'Array | None' = None, b2: 'Array | None' = None, in_place: 'bool' = False) -> 'Weights'",
    megamoe.reference: "(problem: 'Problem', inputs: 'Sequence[tuple[Array, Array | None, Array, Array]]', "
    "weights: 'Sequence[Weights]', *, shared: 'Sequence[Weights]' = (), "
    "threads: 'int' = 1) -> 'list[np.ndarray]'",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__qualname__)
def test_signatures(function):
    assert str(inspect.signature(function)) == SIGNATURES[function]


def program(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "megamoe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize("verb", ["run", "bench", "plan", "doctor", "trace"])
def test_command_line(verb):
    found = program(verb, "--help")
    assert found.returncode == 0 and "--json" in found.stdout, found.stderr


def test_command_line_gives_the_programs_status_and_output():
    plan = program("plan", "--model", "deepseek-v3", "--ranks", "8", "--tokens", "128", "--json")
    assert plan.returncode == 0 and json.loads(plan.stdout)
    assert program("plan", "--ranks", "none").returncode == 2
