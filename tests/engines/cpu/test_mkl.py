"""Intel's BLAS is found where its package is installed, gets one thread, and is used only where it is wanted."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.core.errors import ConfigError
from glassformer.engines.cpu import products
from glassformer.runs.provenance import products as named


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `mkl` of version 1.2, as pip installs it, whose library is told what it was asked for."""
    asked = []
    library = SimpleNamespace(layer=1)
    library.MKL_Set_Threading_Layer = lambda layer: asked.append(layer) or library.layer
    library.MKL_CBWR_Set = lambda mode: asked.append(mode) or 0
    about = tmp_path / "site-packages" / "mkl-1.2.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mkl\nVersion: 1.2\n", encoding="utf-8")
    (about / "RECORD").write_text("../libmkl_core.so.9,,\n../libmkl_rt.so.9,,\n", encoding="utf-8")
    (tmp_path / "libmkl_rt.so.9").touch()
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    opened = []
    monkeypatch.setattr(products, "ctypes", SimpleNamespace(CDLL=lambda path: opened.append(path) or library))
    monkeypatch.setattr(products, "_is_intel", lambda: True)
    monkeypatch.delenv(products.VARIABLE, raising=False)
    products._load.cache_clear()
    yield SimpleNamespace(asked=asked, opened=opened, library=library, path=tmp_path / "libmkl_rt.so.9")
    products._load.cache_clear()


def test_it_is_found_beside_its_package_and_gets_one_thread(package):
    found = products.mkl()
    assert found.version == "1.2"
    assert package.opened == [str(package.path.resolve())]
    assert package.asked == [1, 2]


def test_a_library_without_the_products_says_so_once(package, caplog, monkeypatch):
    for _ in range(2):
        assert products.mkl().address("cblas_sgemm_64") == 0
    loaded = SimpleNamespace(lib_controllers=[SimpleNamespace(internal_api="openblas", filepath="libblas.so")])
    monkeypatch.setattr(products, "ThreadpoolController", lambda: loaded)
    monkeypatch.setattr(products, "ctypes", SimpleNamespace(CDLL=lambda path: SimpleNamespace()))
    for kind in ("float32", "float64", "int64"):
        assert products._address_in_numpy.__wrapped__(np.dtype(kind)) == 0
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in said] == [
        "mkl 1.2 has no cblas_sgemm_64",
        "NumPy's OpenBLAS has no scipy_cblas_sgemm64_",
        "NumPy's OpenBLAS has no scipy_cblas_dgemm64_",
    ]


def test_one_that_another_library_uses_with_threads_is_left_alone_and_this_is_said(package, caplog):
    package.library.layer = 0
    assert products.mkl() is None
    assert package.asked == [1]
    (record,) = caplog.records
    assert re.search("mkl 1.2 is installed, but .*another library has started its threads", record.getMessage())


def test_the_variable_turns_it_off(package, monkeypatch):
    monkeypatch.setenv(products.VARIABLE, "numpy")
    assert products.mkl() is None
    assert not package.opened


def test_on_processors_of_other_makers_it_is_used_only_where_the_variable_says_so(package, monkeypatch):
    monkeypatch.setattr(products, "_is_intel", lambda: False)
    assert products.mkl() is None
    monkeypatch.setenv(products.VARIABLE, "mkl")
    assert products.mkl().version == "1.2"


def test_one_that_is_asked_for_and_not_there_is_an_error(package, monkeypatch):
    monkeypatch.setenv(products.VARIABLE, "mkl")
    package.library.layer = 3
    with pytest.raises(ConfigError, match="GLASSFORMER_BLAS is mkl, which is not installed or cannot be loaded"):
        products.mkl()


def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv(products.VARIABLE, "blis")
    with pytest.raises(ConfigError, match="GLASSFORMER_BLAS is 'blis'"):
        products.mkl()


def test_large_products_are_left_to_the_threads_of_numpy(monkeypatch):
    monkeypatch.setattr(products, "_address_in_mkl", lambda dtype: 1)
    monkeypatch.setattr(products, "_address_in_numpy", lambda dtype: 2)
    kind = np.dtype("float32")
    assert products.gemm_address(kind) == 1
    assert products.gemm_address(kind, 1e9) == 2
    assert products.gemm_address(kind, 1e9, alone=True) == 1


def test_a_run_names_the_blas_of_its_engine(package):
    assert named("cpu") == "mkl 1.2"
    assert named("numpy") != "mkl 1.2"
    assert named("jax") is None
