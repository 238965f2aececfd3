"""The name of a device in, the device out."""

from __future__ import annotations

import torch

from clearhead.errors import UnavailableError


def pick_device(name: str) -> torch.device:
    """The device a name means; `auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        # For a name it does not know, torch lists every kind of device it has heard of.
        reason = str(error).splitlines()[0].split(", ")[0][:120]
        raise UnavailableError(f"device '{name}' cannot be used: {reason}") from None
    return device
