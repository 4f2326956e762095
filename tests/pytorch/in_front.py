"""Starting a Python program again with Kiln's libcudnn.so.9 in front of NVIDIA's.

What libtorch_cuda asks for and Kiln does not export is taken by a library of functions that name themselves
and abort, so that no call can reach NVIDIA's.
"""
import os
import subprocess

STUB = """#include <stdio.h>
#include <stdlib.h>
#define STUB(name) void name(void) { fprintf(stderr, "PyTorch called %s\\n", #name); abort(); }
"""


def _symbols(path, kind):
    text = subprocess.run(["nm", "-D", kind, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if line.strip()}


def torch_library():
    import importlib.util

    folder = os.path.dirname(importlib.util.find_spec("torch").origin)
    return os.path.join(folder, "lib", "libtorch_cuda.so")


def missing_from(library):
    """Names of cuDNN's functions that libtorch_cuda asks for and `library` lacks, sorted."""
    wanted = {name for name in _symbols(torch_library(), "--undefined-only") if name.startswith("cudnn")}
    return sorted(wanted - _symbols(library, "--defined-only"))


def environment(library, folder):
    """The environment of a program that is to call `library`; the stubs are built in `folder`."""
    missing = missing_from(library)
    source, stubs = os.path.join(folder, "stubs.c"), os.path.join(folder, "stubs.so")
    with open(source, "w") as file:
        file.write(STUB + "".join(f"STUB({name})\n" for name in missing))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", stubs, source], check=True)
    return dict(os.environ, LD_PRELOAD=f"{os.path.abspath(library)}:{stubs}")


def loaded_cudnn():
    """The files of this process whose names have libcudnn in them, sorted."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libcudnn" in line})
