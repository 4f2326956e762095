"""Starting a Python program again with Kiln's libcudnn.so.9 in front of NVIDIA's."""
import os


def environment(library):
    """The environment of a program that is to call `library`."""
    return dict(os.environ, LD_PRELOAD=os.path.abspath(library))


def loaded_cudnn():
    """The files of this process whose names have libcudnn in them, sorted."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libcudnn" in line})
