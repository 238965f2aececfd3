"""The view in a notebook cell: the page's module, the view's data, and the whole page for when the kernel is gone."""

from __future__ import annotations

import builtins
import html
import re
from typing import Any

import pytest
from tests.inspection.made_up_views import language_model_view, nasty_view, small_view

from clearhead.errors import DataError, UnavailableError
from clearhead.inspection import widget
from clearhead.inspection.page import module_source, page_html, style_source
from clearhead.inspection.widget import framed_page, inspection_widget


def test_a_cell_has_the_live_view_and_the_page_that_outlives_it() -> None:
    pytest.importorskip("anywidget", reason="needs anywidget: pip install 'clearhead[notebook]'")
    shown = inspection_widget(small_view())
    state = shown.get_state()
    assert state["view"] == small_view()
    assert state["_esm"].startswith(module_source()) and "export default" in state["_esm"]
    assert state["_css"] == style_source()
    data, _ = shown._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    assert data["text/html"] == framed_page(small_view())
    assert data["text/plain"] == "InspectionWidget('Ein Mann fährt mit dem Fahrrad durch die Altstadt.')"
    shown.view = language_model_view()
    assert shown._repr_mimebundle_()[0]["text/html"] == framed_page(language_model_view())
    shown.close()


def test_the_frame_holds_the_page_to_the_letter_and_cannot_reach_the_notebook() -> None:
    frame = framed_page(nasty_view())
    found = re.fullmatch(r'<iframe title="Clearhead" sandbox="([^"]*)" [^>]*? srcdoc="([^"]*)"></iframe>', frame)
    assert found and html.unescape(found[2]) == page_html(nasty_view())
    assert "allow-same-origin" not in found[1] and "allow-scripts" in found[1]


def test_a_view_of_another_kind_is_refused() -> None:
    with pytest.raises(DataError, match="a page shows a 'clearhead-view'"):
        inspection_widget({**small_view(), "version": 7})


def test_without_anywidget_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "anywidget":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    widget._widget_class.cache_clear()
    with pytest.raises(UnavailableError, match=r"pip install 'clearhead\[notebook\]'"):
        inspection_widget(small_view())
    widget._widget_class.cache_clear()
