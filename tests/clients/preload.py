"""Puts libraries in front for cudnn-frontend, which opens them by SONAME: the loader answers with one that is
already there. Import this, and call `load`, before `import cudnn`."""

import ctypes
import os


def load(*paths):
    """Keeps each library loaded for the life of the process; the handles."""
    handles = []
    for path in paths:
        if not os.path.exists(path):
            raise SystemExit(f"there is no library {path}")
        handles.append(ctypes.CDLL(os.path.abspath(path), mode=ctypes.RTLD_GLOBAL))
    return handles
