from pathlib import Path

import pytest

from provisioner.cloudprovider.kwok import catalogue
from provisioner.operator.kwok import kwok_catalogue
from provisioner.options import Options


def test_the_catalogue_is_the_built_in_one_unless_a_file_is_named(tmp_path: Path) -> None:
    assert kwok_catalogue(Options()) is None
    with pytest.raises(catalogue.CatalogueError):
        kwok_catalogue(Options(instance_types_file_path=str(tmp_path / "none.json")))
