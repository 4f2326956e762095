"""Which libcudnn `kiln doctor` says that a framework would load, against what ld.so loads.

    bazel test //tests/cli:clients_test

A made-up Python environment: bin/python3 is a program of ours that opens what it is told to open, as Python does, and
says where the cudnnGetVersion is from that a framework's object would call.
"""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

RUNFILES = pathlib.Path.cwd()
KILN = RUNFILES / "cli/kiln"
CC = os.environ.get("CC", "cc")
NAME = "libcudnn.so.9"

# Opens its first arguments, asks the last one, and prints the file of the answer.
PYTHON = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int count, char** words) {
  void* last = 0;
  for (int i = 1; i < count; ++i)
    if (!(last = dlopen(words[i], RTLD_NOW))) return printf("none: %s\n", dlerror()), 0;
  void* (*asked)(void) = (void* (*)(void))dlsym(last, "asked");
  void* function = asked ? asked() : dlsym(last, "cudnnGetVersion");
  Dl_info about;
  if (!function || !dladdr(function, &about)) return puts("none: no function"), 0;
  return puts(about.dli_fname), 0;
}
"""
CUDNN = 'unsigned long cudnnGetVersion(void) { return %d; }\nconst char* parts = "%s";\n'
NOTE = '__asm__(".pushsection .note.kiln,\\"a\\",%note\\n.balign 4\\n.long 5,0,1\\n.asciz \\"Kiln\\"\\n.balign 4\\n.popsection");\n'
NEEDS = "unsigned long cudnnGetVersion(void);\nvoid* asked(void) { return (void*)&cudnnGetVersion; }\n"
OPENS = """
#include <dlfcn.h>
void* asked(void) {
  void* library = dlopen("%s", RTLD_NOW);
  return library ? dlsym(library, "cudnnGetVersion") : 0;
}
"""
PARENT = "void* asked(void);\nvoid* keeps_it(void) { return asked(); }\n"
TAGS = {"rpath": "--disable-new-dtags", "runpath": "--enable-new-dtags"}


class ClientsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.parts = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))).resolve()
        cls.addClassCleanup(shutil.rmtree, cls.parts)
        cls.cudnn("nvidia", CUDNN % (2, "libcudnn_graph.so"))
        cls.cudnn("kiln", NOTE + CUDNN % (1, ""))

    @classmethod
    def compile(cls, name, source, *options, shared=True):
        """cls.parts/name; made once."""
        output = cls.parts / name
        if not output.exists():
            output.parent.mkdir(parents=True, exist_ok=True)
            (cls.parts / "source.c").write_text(source)
            subprocess.run([CC, "-fPIC", *(["-shared"] if shared else []), "-o", output, cls.parts / "source.c",
                            *options, "-ldl"], check=True)
        return output

    @classmethod
    def cudnn(cls, folder, source, name=NAME, soname=NAME):
        return cls.compile(f"{folder}/{name}", source, *([f"-Wl,-soname,{soname}"] if soname else []))

    @classmethod
    def asking(cls, tag, path="$ORIGIN/../../nvidia/cudnn/lib", name=NAME, options=()):
        """An object that needs `name`, with a path or without."""
        cls.cudnn("stub", CUDNN % (0, ""), name, name)
        paths = [f"-Wl,{TAGS[tag]}", f"-Wl,-rpath,{path}"] if tag else []
        return cls.compile(f"asking/{tag}.{abs(hash((path, name, options)))}", NEEDS, "-Wl,--no-as-needed",
                           f"-L{cls.parts / 'stub'}", f"-l:{name}", *paths, *options)

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(dir=self.parts))
        self.site = self.root / "env/lib/python3.12/site-packages"
        self.site.mkdir(parents=True)
        self.python()

    def python(self, rpath=False):
        options = [f"-Wl,{TAGS['rpath']}", "-Wl,-rpath,$ORIGIN/../exe"] if rpath else []
        self.put(self.compile(f"python3.{rpath}", PYTHON, *options, shared=False), "env/bin/python3")

    def put(self, source, where):
        path = self.root / where
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, path)
        return path

    def in_site(self, source, where):
        return self.put(source, self.site.relative_to(self.root) / where)

    def install(self, distribution, version, **files):
        """A distribution's *.dist-info, and its Python files."""
        info = self.site / f"{distribution}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n\nVersion: 0\n")
        for name, text in files.items():
            path = self.site / name.replace("__", "/") / "__init__.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def environment(self, **variables):
        left_out = ("LD_", "KILN_", "VIRTUAL_ENV", "CONDA", "CUDNN_", "CUDA_", "PYTHON")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        return {**kept, "PATH": f"{self.root}/env/bin:{os.environ['PATH']}", "HOME": str(self.root), **variables}

    def doctor(self, *options, **variables):
        none = {name: "/none/x" for name in ("KILN_LIBCUDA", "KILN_NVRTC", "KILN_CPU_PLUGIN")}
        done = subprocess.run([KILN, "doctor", *map(str, options)], text=True, capture_output=True, check=False,
                              cwd=self.root, env=self.environment(KILN_CACHE_DIR=str(self.root / "cache"), **none, **variables))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)  # there is no device
        return done.stdout

    def line(self, framework, *options, **variables):
        text = self.doctor(*options, **variables)
        found = re.search(rf"(?m)^(ok|note) +{framework} +(.*)$", text)
        self.assertIsNotNone(found, text)
        return f"{found.group(1)} {found.group(2)}"

    def loaded(self, *objects, **variables):
        """The file that ld.so gives the last object; empty for none."""
        done = subprocess.run([self.root / "env/bin/python3", *objects], text=True, capture_output=True, check=True,
                              cwd=self.root, env=self.environment(**variables))
        return "" if done.stdout.startswith("none") else os.path.realpath(self.root / done.stdout.strip())

    def agree(self, framework, *objects, **variables):
        """The doctor's line, which must name what ld.so loads."""
        line = self.line(framework, **variables)
        said = re.match(r"(?:ok Kiln's|note NVIDIA's|note not Kiln's but) (\S+): ", line)
        want = self.loaded(*objects, **variables)
        self.assertEqual(os.path.realpath(self.root / said.group(1)) if said else "", want, f"{line}\n{variables}")
        if not want:
            self.assertRegex(line, r"^note no libcudnn\.so")
        return line


class RulesTest(ClientsTest):
    """PyTorch's tree: torch/_C loads libtorch_cuda.so, which needs libcudnn.so.9."""

    def torch(self, asking, parent=None):
        if not list(self.site.glob("torch-*")):
            self.install("torch", "2.11.0")
        self.in_site(asking, "torch/lib/libtorch_cuda.so")
        return self.in_site(parent or self.parent(None), "torch/_C.cpython-312.so")

    def parent(self, tag):
        """Finds libtorch_cuda.so, and in `parent` a libcudnn.so.9 if ld.so looks there."""
        lib = self.compile("lib/libtorch_cuda.so", "void* asked(void) { return 0; }\n", "-Wl,-soname,libtorch_cuda.so")
        paths = "$ORIGIN/lib:$ORIGIN/../parent" if tag else "$ORIGIN/lib"
        return self.compile(f"parent.{tag}", PARENT, f"-L{lib.parent}", "-l:libtorch_cuda.so",
                            f"-Wl,{TAGS[tag or 'runpath']}", f"-Wl,-rpath,{paths}")

    def places(self):
        nvidia, kiln = self.parts / "nvidia" / NAME, self.parts / "kiln" / NAME
        self.in_site(nvidia, f"nvidia/cudnn/lib/{NAME}")
        self.in_site(nvidia, f"parent/{NAME}")
        self.put(nvidia, f"env/exe/{NAME}")
        self.put(kiln, f"library/{NAME}")
        self.put(kiln, f"preload/{NAME}")

    def test_every_combination(self):
        self.places()
        rules = set()
        for own, parent, program, library, preload in itertools.product(
                (None, "rpath", "runpath"), (None, "rpath", "runpath"), (False, True), (False, True), (False, True)):
            with self.subTest(own=own, parent=parent, program=program, library=library, preload=preload):
                self.python(rpath=program)
                opened = self.torch(self.asking(own), self.parent(parent))
                variables = {}
                if library:
                    variables["LD_LIBRARY_PATH"] = f"/none:{self.root}/library"
                if preload:
                    variables["LD_PRELOAD"] = f"{self.root}/preload/{NAME}"
                line = self.agree("PyTorch 2.11.0", opened, **variables)
                rules |= {rule for rule in ("DT_RPATH", "DT_RUNPATH", "LD_LIBRARY_PATH names", "LD_PRELOAD names")
                          if rule in line.split(";")[0]}
                self.assertEqual(line.startswith("ok"), "LD_LIBRARY_PATH names" in line or "LD_PRELOAD names" in line)
                self.assertEqual("puts Kiln first" in line, line.startswith("note"))
        self.assertEqual(len(rules), 4, rules)

    def test_kiln_itself(self):
        self.places()
        opened = self.torch(self.asking("rpath"))
        kiln = str(RUNFILES / "api" / NAME)
        line = self.line("PyTorch 2.11.0", LD_PRELOAD=kiln)
        self.assertEqual(line, f"ok Kiln's {kiln}: libtorch_cuda.so needs {NAME}, and LD_PRELOAD names it")
        self.assertEqual(self.loaded(opened, LD_PRELOAD=kiln), os.path.realpath(kiln))
        # The file that the line advises is there.
        line = self.line("PyTorch 2.11.0", LD_LIBRARY_PATH=os.path.dirname(kiln))
        self.assertIn(f"needs {NAME}, and DT_RPATH of libtorch_cuda.so ($ORIGIN/../../nvidia/cudnn/lib) comes before "
                      "LD_LIBRARY_PATH; LD_PRELOAD=/", line)
        advised = re.search(r"LD_PRELOAD=(\S+)", line).group(1)
        self.assertTrue(self.agree("PyTorch 2.11.0", opened, LD_PRELOAD=advised).startswith("ok Kiln's"))

    def test_words_of_paths(self):
        self.places()
        for path in ("${ORIGIN}/../../nvidia/cudnn/lib", "/none:$ORIGIN/../../nvidia/cudnn/lib:/none", "", "library",
                     "$LIB/none:$ORIGIN/../../nvidia/cudnn/lib"):
            for tag in TAGS:
                with self.subTest(path=path, tag=tag):
                    self.agree("PyTorch 2.11.0", self.torch(self.asking(tag, path)))
        opened = self.torch(self.asking(None))
        self.put(self.parts / "kiln" / NAME, NAME)
        for path in ("library", ":/none", "/none:", "/none;library", "/none::", "$ORIGIN/../exe", ""):
            with self.subTest(library_path=path):
                self.agree("PyTorch 2.11.0", opened, LD_LIBRARY_PATH=path)

    def test_preloaded_by_what_name(self):
        self.places()
        opened = self.torch(self.asking("runpath"))
        other = self.cudnn("other_soname", CUDNN % (3, ""), soname="libother.so.9")
        without = self.cudnn("without_soname", CUDNN % (3, ""), soname=None)
        renamed = self.put(self.parts / "kiln" / NAME, "renamed.so")
        for preload in (other, without, renamed, f"/none.so {renamed}", f"/none.so:{renamed}", NAME, "./renamed.so"):
            with self.subTest(preload=preload):
                # The last is the name itself: which file has been loaded for it.
                self.agree("PyTorch 2.11.0", opened, NAME, LD_PRELOAD=str(preload), LD_LIBRARY_PATH=f"{self.root}/library")
                self.agree("PyTorch 2.11.0", opened, NAME, LD_PRELOAD=str(preload))

    def test_files_that_do_not_fit(self):
        self.places()
        opened = self.torch(self.asking(None))
        variables = dict(LD_LIBRARY_PATH=f"{self.root}/first:{self.root}/library")
        first = self.put(self.parts / "kiln" / NAME, f"first/{NAME}")
        whole = bytearray(first.read_bytes())
        for place, byte in ((18, 0x28), (4, 1)):  # e_machine, EI_CLASS
            first.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1:])
            self.assertIn("/library/", self.agree("PyTorch 2.11.0", opened, **variables))
        first.write_bytes(whole[:5] + b"\2" + whole[6:])  # EI_DATA
        self.assertIn("bytes in the other order", self.agree("PyTorch 2.11.0", opened, **variables))
        first.write_text("/* GNU ld script */ INPUT(libcudnn.so.9)" * 4)
        self.assertIn("is no ELF file", self.agree("PyTorch 2.11.0", opened, **variables))
        first.write_bytes(b"")
        self.assertIn("is cut off", self.agree("PyTorch 2.11.0", opened, **variables))
        first.unlink()
        first.mkdir()
        self.assertIn("is no regular file", self.agree("PyTorch 2.11.0", opened, **variables))

    def test_the_systems_folders(self):
        """On a machine that has a libcudnn.so.9 there, it is found; nobody has a libcudnn.so.7."""
        opened = self.torch(self.asking(None))
        self.agree("PyTorch 2.11.0", opened)
        self.agree("PyTorch 2.11.0", self.torch(self.asking(None, options=("-Wl,-z,nodefaultlib",))))
        line = self.agree("PyTorch 2.11.0", self.torch(self.asking(None, name="libcudnn.so.7")))
        self.assertIn("ld.so finds none; LD_PRELOAD=", line)

    def test_damaged_objects(self):
        opened = self.torch(self.asking("rpath"))
        whole = (self.site / "torch/lib/libtorch_cuda.so").read_bytes()
        for size in (0, 3, 15, 63, 64, 200, 600, len(whole) // 8, len(whole) // 4):
            (self.site / "torch/lib/libtorch_cuda.so").write_bytes(whole[:size])
            self.assertRegex(self.line("PyTorch 2.11.0"), "what it would load is not known: /.*(is cut off|is no ELF file|has nothing)")
        opened.write_bytes(b"\x7fELF")  # a loader that cannot be read has no path
        (self.site / "torch/lib/libtorch_cuda.so").write_bytes(whole)
        self.line("PyTorch 2.11.0")


class FrameworksTest(ClientsTest):
    """Each framework's tree, and what its Python opens by path."""

    def wheel(self):
        return self.in_site(self.parts / "nvidia" / NAME, f"nvidia/cudnn/lib/{NAME}")

    def kilns(self):
        self.put(self.parts / "kiln" / NAME, f"library/{NAME}")
        every = {"LD_PRELOAD": f"{self.root}/library/{NAME}", "LD_LIBRARY_PATH": f"{self.root}/library"}
        return [dict(some) for n in range(3) for some in itertools.combinations(every.items(), n)]

    def opening(self):
        return self.compile("opening.so", OPENS % NAME)

    def test_jax_opens_the_wheel_first(self):
        path = self.in_site(self.opening(), "jax_plugins/xla_cuda13/xla_cuda_plugin.so")
        self.install("jax", "0.11.0", jax_plugins__xla_cuda13='_load("cudnn", ["libcudnn.so.9"])\n')
        for variables in self.kilns():
            self.agree("JAX 0.11.0", path, **variables)
        wheel = self.wheel()
        for variables in self.kilns():
            line = self.agree("JAX 0.11.0", wheel, path, **variables)
            self.assertEqual(line.startswith("ok"), "LD_PRELOAD" in variables, line)
            self.assertEqual("jax_plugins opens that file by its path before" in line, line.startswith("note"))
        # Releases before 0.5 did not.
        (self.site / "jax_plugins/xla_cuda13/__init__.py").write_text("")
        for variables in self.kilns():
            self.agree("JAX 0.11.0", path, **variables)

    def test_cudnn_frontend_calls_the_file_that_it_opened(self):
        self.in_site(self.opening(), "cudnn/_compiled_module.cpython-312.so")
        wheel = self.wheel()
        self.install("nvidia_cudnn_frontend", "1.23.0", cudnn="def _dlopen_cudnn():\n")
        for variables in self.kilns():
            line = self.agree("cudnn-frontend 1.23.0", wheel, **variables)
            self.assertIn("neither LD_PRELOAD nor LD_LIBRARY_PATH changes that: put a link to /", line)
        # A link in its place does.
        wheel.unlink()
        wheel.symlink_to(self.root / "library" / NAME)
        self.assertRegex(self.agree("cudnn-frontend 1.23.0", wheel), "^ok Kiln's")
        # Without the wheel, by name.
        wheel.unlink()
        for variables in self.kilns():
            self.assertEqual(self.agree("cudnn-frontend 1.23.0", NAME, **variables).startswith("ok"), bool(variables))

    def test_newer_cudnn_frontend_looks_at_the_library_path(self):
        self.in_site(self.opening(), "cudnn/_compiled_module.cpython-312.so")
        wheel = self.wheel()
        self.install("nvidia_cudnn_frontend", "1.32.0",
                     cudnn='def _dlopen_cudnn():\n  os.environ.get("LD_LIBRARY_PATH", "")\n')
        for variables in self.kilns():
            opened = self.root / "library" / NAME if "LD_LIBRARY_PATH" in variables else wheel
            line = self.agree("cudnn-frontend 1.32.0", opened, **variables)
            self.assertEqual(line.startswith("ok"), "LD_LIBRARY_PATH" in variables, line)
            self.assertEqual("LD_LIBRARY_PATH=/" in line, line.startswith("note"), line)

    def test_pytorch_opens_the_wheel_where_nothing_is_found(self):
        name = "libcudnn.so.7"
        path = self.in_site(self.asking(None, name=name), "torch/lib/libtorch_cuda.so")
        self.install("torch", "2.11.0", torch="def _preload_cuda_deps(\n")
        self.assertIn("ld.so finds none", self.agree("PyTorch 2.11.0", path))
        wheel = self.in_site(self.cudnn("nvidia7", CUDNN % (2, "libcudnn_graph.so"), name, name), f"nvidia/cudnn/lib/{name}")
        self.assertIn(f"ld.so finds no {name}, and then torch/__init__.py opens that file",
                      self.agree("PyTorch 2.11.0", wheel, path))

    def test_newer_pytorch_opens_the_wheel_first(self):
        path = self.in_site(self.asking("runpath", "/none"), "torch/lib/libtorch_cuda.so")
        self.install("torch", "2.15.0", torch="def _preload_cuda_deps(\n  _preload_cuda_deps(required=False)\n")
        for variables in self.kilns():
            self.agree("PyTorch 2.15.0", path, **variables)
        wheel = self.wheel()
        for variables in self.kilns():
            line = self.agree("PyTorch 2.15.0", wheel, path, **variables)
            self.assertEqual(line.startswith("ok"), "LD_PRELOAD" in variables, line)

    def test_onnx_runtime_opens_the_wheel_when_it_is_told_to(self):
        path = self.in_site(self.asking("runpath", "/none"), "onnxruntime/capi/libonnxruntime_providers_cuda.so")
        self.install("onnxruntime_gpu", "1.24.0", onnxruntime="def preload_dlls(\n")
        self.wheel()
        for variables in self.kilns():
            line = self.agree("ONNX Runtime 1.24.0", path, **variables)
            self.assertEqual("a program that calls onnxruntime.preload_dlls() has /" in line,
                             "LD_PRELOAD" not in variables, line)
        # Releases since 1.31 need nothing and open it.
        path = self.in_site(self.opening(), path.relative_to(self.site))
        for variables in self.kilns():
            self.assertIn("libonnxruntime_providers_cuda.so opens libcudnn.so.9", self.agree("ONNX Runtime 1.24.0", path, **variables))

    def test_transformer_engine_looks_below_homes(self):
        path = self.in_site(self.opening(), "transformer_engine/libtransformer_engine.so")
        wheel = self.wheel()
        home = self.put(self.parts / "nvidia" / NAME, f"home/deep/{NAME}")
        nothing = self.root / "nothing"
        nothing.mkdir()
        for text, first in (("def _load_cudnn\n", wheel), ("_load_nvidia_cuda_library def _load_cudnn\n", home),
                            ('_load_cuda_library("cudnn")\n', home)):
            shutil.rmtree(self.site / "transformer_engine-2.9.0.dist-info", ignore_errors=True)
            self.install("transformer_engine", "2.9.0", transformer_engine__common=text)
            for variables in self.kilns():
                variables["CUDA_HOME"] = str(nothing)
                if "_load_cuda_library" not in text:  # that one may find a libcudnn.so of the machine first
                    self.agree("Transformer Engine 2.9.0", wheel, path, **variables)
                variables["CUDNN_HOME"] = str(self.root / "home")
                self.agree("Transformer Engine 2.9.0", first, path, **variables)

    def test_tensorflow_and_cupy(self):
        self.in_site(self.opening(), "tensorflow/libtensorflow_framework.so.2")
        self.install("tensorflow", "2.9.1")
        self.assertIn("libtensorflow_framework.so.2 opens libcudnn.so.8", self.line("TensorFlow 2.9.1"))
        shutil.rmtree(self.site / "tensorflow-2.9.1.dist-info")
        self.install("tensorflow", "2.20.0")
        for variables in self.kilns():
            self.assertIn("opens libcudnn.so.9", self.agree("TensorFlow 2.20.0", self.site / "tensorflow/libtensorflow_framework.so.2", **variables))
        self.install("cupy_cuda13x", "14.0.0")
        self.assertRegex(self.line("CuPy 14.0.0"), "^note has nothing in /.* that asks for libcudnn$")
        self.in_site(self.asking(None), "cupy_backends/cuda/libs/cudnn.cpython-312.so")
        self.agree("CuPy 14.0.0", self.site / "cupy_backends/cuda/libs/cudnn.cpython-312.so")
        (self.site / "cupy").mkdir()
        (self.site / "cupy/_environment.py").write_text("{'cudnn': None}")
        kept = self.put(self.parts / "nvidia" / NAME, f".cupy/cuda_lib/13.x/cudnn/9.19/lib/{NAME}")
        self.agree("CuPy 14.0.0", kept, self.site / "cupy_backends/cuda/libs/cudnn.cpython-312.so")


class SitesTest(ClientsTest):
    def test_where_packages_are_looked_for(self):
        self.assertRegex(self.doctor(), rf"(?m)^note +clients +no framework that calls cuDNN in {self.site}$")
        (self.root / "env/bin/python3").unlink()
        (self.root / "env/bin/python3").write_text("#!/bin/sh\n")
        os.chmod(self.root / "env/bin/python3", 0o755)
        self.assertRegex(self.doctor(), r"(?m)^note +clients +/.*/env/bin/python3 is a script.*--site DIR")
        self.assertRegex(self.doctor(PATH="/none"), r"(?m)^note +clients +no python3 on PATH; --site DIR")

    def test_virtual_environments(self):
        """The prefix of a virtual environment is that of the link; its interpreter is elsewhere."""
        venv = self.root / "venv"
        (venv / "bin").mkdir(parents=True)
        (venv / "pyvenv.cfg").write_text("home = elsewhere\n")
        (venv / "bin/python3").symlink_to(self.root / "env/bin/python3")
        (venv / "lib/python3.12/site-packages").mkdir(parents=True)
        for variables in (dict(VIRTUAL_ENV=str(venv), PATH="/none"), dict(CONDA_PREFIX=str(venv), PATH="/none"),
                          dict(PATH=f"{venv}/bin")):
            self.assertRegex(self.doctor(**variables), rf"(?m)cuDNN in {venv}/lib/python3.12/site-packages$")

    def test_folders_that_are_named(self):
        others = [self.root / name for name in ("a[b]", "c")]
        self.install("torch", "2.1.0")
        for folder, version in zip(others, ("2.2.0", "2.3.0")):
            shutil.copytree(self.site, folder)
            (folder / "torch-2.1.0.dist-info").rename(folder / f"torch-{version}.dist-info")
            (folder / f"torch-{version}.dist-info/METADATA").write_text(f"Version: {version}\r\n")
        text = self.doctor("--site", others[0], "--site", others[1])
        self.assertRegex(text, r"(?m)^note +PyTorch 2\.2\.0 +has nothing in ")
        self.assertNotIn("PyTorch 2.3.0", text)  # Python imports the first
        self.assertNotIn("PyTorch 2.1.0", text)
        (others[1] / "torch-2.3.0.dist-info/METADATA").unlink()
        self.assertRegex(self.doctor("--site", others[1]), r"(?m)^note +PyTorch \? +has nothing in ")
        done = subprocess.run([KILN, "doctor", "--site", "/none"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/none", done.stderr)


if __name__ == "__main__":
    unittest.main()
