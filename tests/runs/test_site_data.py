"""What a site.yaml says of the site's data."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")

from fedquilt.errors import FedquiltError
from fedquilt.federation.site.config import SiteConfig
from fedquilt.runs.site_data import OTHER_FIELDS, SiteData, load_site_graph, read_site_data
from support.hospitals import CLASSES, WARDS, write_hospital, write_hospital_site


def test_the_fields_that_are_not_about_data_are_all_known() -> None:
    assert {*SiteData.model_fields, *OTHER_FIELDS} == set(SiteConfig.model_fields)
    assert set(SiteData.model_fields).isdisjoint(OTHER_FIELDS)


def test_the_classes_that_all_sites_agreed_on(tmp_path: Path) -> None:
    folder = write_hospital(tmp_path / "data", WARDS["hospital-b"])
    site = read_site_data(write_hospital_site(tmp_path, folder, classes=list(CLASSES), dp={"clip": "not looked at"}))
    graph = load_site_graph(site)
    assert graph.class_names == CLASSES
    assert set(graph.y.tolist()) == {CLASSES.index("flu"), CLASSES.index("none")}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: a\n", "does not say 'graph'; a site needs a name and a graph"),
        ("name: a\ngraph: g\ngrahp: x\n", "there is no field 'grahp'; did you mean 'graph'"),
        ("name: a\ngraph: g\nclasses: [x, x]\n", "classes=.*the class 'x' is listed twice"),
        ("name: a\ngraph: g\nkeep_copies: some\n", "keep_copies='some' is not possible"),
    ],
)
def test_what_is_wrong_is_named(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(FedquiltError, match=says):
        read_site_data(tmp_path / "site.yaml")
