"""A view in, a notebook cell out that shows it with the page's own module, and stays when the notebook is saved.

The cell holds two forms: the live widget, whose `view` can be changed from Python, and the page in a frame, which is
what readers see where no widget can live (a notebook turned into HTML, a viewer without a kernel).
"""

from __future__ import annotations

import functools
import html
from typing import TYPE_CHECKING, Any

from clearhead.errors import UnavailableError
from clearhead.inspection.page import module_source, page_html, style_source

if TYPE_CHECKING:
    from anywidget import AnyWidget

FRAME_HEIGHT = 760
_RENDER = """
function render({ model, el }) {
  const handle = mount(el.appendChild(document.createElement("div")), model.get("view"));
  const update = () => handle.update(model.get("view"));
  model.on("change:view", update);
  return () => {
    model.off("change:view", update);
    handle.destroy();
  };
}
export default { render };
"""


def inspection_widget(view: dict[str, Any]) -> AnyWidget:
    """The view as a widget; set its `view` to show another one in the same cell."""
    # A view that cannot be shown is refused here, where a person sees the message.
    page_html(view)
    return _widget_class()(view=view)


def framed_page(view: dict[str, Any]) -> str:
    """The whole page in a frame of its own, as a piece of HTML."""
    page = html.escape(page_html(view), quote=True)
    looks = f'width="100%" height="{FRAME_HEIGHT}" style="border:0"'
    return f'<iframe title="Clearhead" sandbox="allow-scripts allow-downloads" {looks} srcdoc="{page}"></iframe>'


@functools.cache
def _widget_class() -> type[AnyWidget]:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise UnavailableError(
            "a view in a notebook needs anywidget, which is not installed: pip install 'clearhead[notebook]'"
        ) from None

    class InspectionWidget(anywidget.AnyWidget):
        """A view in a notebook cell."""

        _esm = module_source() + _RENDER
        _css = style_source()
        view = traitlets.Dict().tag(sync=True)

        def __repr__(self) -> str:
            return f"InspectionWidget({self.view['texts']['source']!r})"

        def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
            bundle = super()._repr_mimebundle_(**kwargs)
            if bundle is not None:
                bundle[0]["text/html"] = framed_page(self.view)
            return bundle

    return InspectionWidget
