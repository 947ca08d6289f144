"""The shape of a mesh: written, read, and refused when it makes no sense."""

import sys

import pytest

from glassformer.core.errors import ConfigError
from glassformer.engines.mesh.shape import AXES, MeshShape, build_mesh, shape_of


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("data=8,fsdp=64,tensor=8", MeshShape(8, 64, 8)),
        ("tensor=2", MeshShape(tensor=2)),
        (" fsdp = 4 , data = 2 ", MeshShape(2, 4, 1)),
    ],
)
def test_a_shape_is_read_with_one_device_along_axes_left_out(text, shape):
    assert MeshShape.parse(text) == shape


def test_text_and_dict_lead_back_to_the_shape():
    shape = MeshShape(2, 3, 5)
    assert str(shape) == "data=2,fsdp=3,tensor=5"
    assert MeshShape.parse(str(shape)) == MeshShape.from_dict(shape.to_dict()) == shape
    assert (shape.size, shape.replicas) == (30, 6)
    assert tuple(shape.to_dict()) == AXES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read the mesh ''"),
        ("8", "write it as data=8,fsdp=64,tensor=8"),
        ("data=", "cannot read the mesh"),
        ("data=-1", "cannot read the mesh"),
        ("data=1.5", "cannot read the mesh"),
        ("data=²", "cannot read the mesh"),
        ("data=0", "data of the mesh is 0"),
        ("data=2,,tensor=2", "cannot read the mesh"),
        ("data=2,data=2", "names data twice"),
        ("tenser=2", "did you mean 'tensor'"),
    ],
)
def test_text_that_is_no_shape_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        MeshShape.parse(text)


@pytest.mark.parametrize("devices", [0, -2, 1.0, True, "2", None])
def test_devices_are_counted_in_whole_numbers(devices):
    with pytest.raises(ConfigError, match="fsdp of the mesh is"):
        MeshShape(fsdp=devices)


def test_a_mesh_of_one_device_has_all_three_axes(jax):
    mesh = build_mesh(MeshShape(), jax.devices()[:1])
    assert mesh.axis_names == AXES
    assert shape_of(mesh) == MeshShape()


def test_the_number_of_devices_must_be_that_of_the_mesh(jax):
    with pytest.raises(ConfigError, match=r"data=1,fsdp=3,tensor=1 needs 3 devices, but there are 1") as error:
        build_mesh(MeshShape(fsdp=3), jax.devices()[:1])
    assert "whose product is 1" in error.value.hint


def test_without_jax_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match="need JAX, which is not installed") as error:
        build_mesh(MeshShape())
    assert "glassformer[jax]" in error.value.hint
