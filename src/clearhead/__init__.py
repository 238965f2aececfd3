"""Clearhead: train a Transformer on your own data, look inside it, ship it with proof."""

from clearhead.version import VERSION as __version__

__all__ = ["__version__"]
