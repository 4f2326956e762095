"""The C++ rules of Kiln: the native ones with our compile options. Arguments are the native rules'.

    kiln_library(name = "graph", srcs = [...], hdrs = [...], deps = ["//ir/base"])
    kiln_test(name = "graph_test", srcs = ["graph_test.cc"], deps = ["//ir/graph"])    # GoogleTest's main
    kiln_test(name = "capi_test", srcs = ["capi_test.c"], main = False, deps = [...])  # an own main
    kiln_test_objects(name = "calls", srcs = ["calls_test.cc"], deps = [...])    # sources of several kiln_tests
    kiln_shared_library(name = "libkiln_cpu.so", exports = "exports.map", deps = [...])

Tags: "gpu" for a test or benchmark that needs a GPU (tools/bundle.sh collects them), "fuzz" is set by
kiln_fuzzer. Everything is linked statically except the system's shared libraries.
"""

COPTS = [
    "-Wall",
    "-Wextra",
    # Designated initialisers leave the rest to the defaults; that is their point.
    "-Wno-missing-field-initializers",
    "-fvisibility=hidden",
] + select({
    # Clang has other warnings than GCC, and some are about GCC's library.
    "//tools/bazel:fuzz": [],
    "//conditions:default": ["-Werror"],
}) + select({
    "//tools/bazel:dbg": [],
    "//conditions:default": ["-O2"],
})

# Most of a test runs once, and compiling it takes longer than running it: what oracles do again and again is in
# libraries, which keep -O2.
TEST_COPTS = COPTS + select({
    "//tools/bazel:dbg": [],
    "//conditions:default": ["-O1"],
})

_PRECOMPILED = "//tools/bazel/precompiled:"

# GCC 12 takes std::string in a precompiled header for code of ours, and warns of what it inlines there.
_FALSE_WARNINGS = [
    "-Wno-array-bounds",
    "-Wno-restrict",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
]

def _precompiled(header, copts, srcs):
    """Options and dependencies with which C++ sources read a precompiled header (precompiled.bzl).

    Args:
      header: a target of tools/bazel/precompiled.
      copts: options of the target's own; those that change code would change the header too.
      srcs: its sources; those of C and assembly know no such header.
    """
    if any([option.startswith(("-O", "-std=")) for option in copts]) or any([name.endswith((".c", ".S")) for name in srcs]):
        return [], []
    return (
        select({
            "//tools/bazel:dbg": [],
            "//conditions:default": _FALSE_WARNINGS + [
                "-include",
                "$(BINDIR)/tools/bazel/precompiled/%s.h" % header,
            ],
        }),
        select({
            "//tools/bazel:dbg": [],
            "//conditions:default": [_PRECOMPILED + header],
        }),
    )

# A program of the bundle finds the libraries beside it: bundle/bin/kiln, bundle/lib/libcudnn.so.9.
_PROGRAM_LINKOPTS = ["-Wl,-rpath,$$ORIGIN/../lib"]

def kiln_library(name, copts = [], deps = [], srcs = [], **kwargs):
    """A static library. `alwayslink = True` keeps objects that only a shared library's exports need."""
    include, header = _precompiled("library", copts, srcs)
    native.cc_library(
        name = name,
        srcs = srcs,
        copts = COPTS + include + copts,
        deps = deps + header,
        linkstatic = True,
        **kwargs
    )

def kiln_binary(name, copts = [], linkopts = [], deps = [], srcs = [], **kwargs):
    """A program."""
    include, header = _precompiled("library", copts, srcs)
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = COPTS + include + copts,
        deps = deps + header,
        linkopts = _PROGRAM_LINKOPTS + linkopts,
        **kwargs
    )

def kiln_test(name, main = True, copts = [], linkopts = [], deps = [], srcs = [], size = "small", **kwargs):
    """A test program; `main = False` for one that brings its own main()."""
    include, header = _precompiled("test", copts, srcs)
    native.cc_test(
        name = name,
        srcs = srcs,
        size = size,
        copts = TEST_COPTS + include + copts,
        linkopts = _PROGRAM_LINKOPTS + linkopts,
        linkstatic = True,
        deps = deps + (["@gtest//:gtest_main"] if main else []) + header,
        **kwargs
    )

def kiln_test_objects(name, copts = [], deps = [], srcs = [], **kwargs):
    """Sources with tests, compiled once for the kiln_tests (one a device, say) that have them in `deps`."""
    include, header = _precompiled("test", copts, srcs)
    native.cc_library(
        name = name,
        srcs = srcs,
        testonly = True,
        copts = TEST_COPTS + include + copts,
        deps = [dep for dep in deps if dep != "@gtest//:gtest"] + ["@gtest//:gtest"] + header,
        # Tests register themselves; nothing refers to their objects.
        alwayslink = True,
        linkstatic = True,
        **kwargs
    )

def kiln_shared_library(
        name,
        deps,
        exports = None,
        soname = None,
        srcs = [],
        copts = [],
        linkopts = [],
        additional_linker_inputs = [],
        **kwargs):
    """A shared object named as the target, as libcudnn.so.9.

    Args:
      name: the file's name.
      srcs: sources that belong to it alone.
      deps: libraries linked in; those that define exported functions need `alwayslink = True`.
      exports: the version script; what it does not list stays local.
      soname: DT_SONAME, the target's name where left out.
      copts: further compile options, for `srcs`.
      linkopts: further link options.
      additional_linker_inputs: files that linkopts name.
      **kwargs: as cc_binary takes them.
    """
    inputs = list(additional_linker_inputs)
    options = ["-Wl,-soname," + (soname or name), "-Wl,-z,defs", "-Wl,-rpath,$$ORIGIN"] + linkopts
    if exports:
        inputs.append(exports)
        options.append("-Wl,--version-script,$(location %s)" % exports)
    include, header = _precompiled("library", copts, srcs)
    native.cc_binary(
        name = name,
        srcs = srcs,
        additional_linker_inputs = inputs,
        copts = COPTS + include + copts,
        linkopts = options,
        linkshared = True,
        deps = deps + header,
        **kwargs
    )

def kiln_fuzzer(name, copts = [], linkopts = [], deps = [], tags = [], **kwargs):
    """A libFuzzer target: a source with LLVMFuzzerTestOneInput. Built and run by tools/fuzz.sh.

    `corpus` folders go into `data` and are found by the target's name: <package>/<name>_corpus/.
    """
    native.cc_binary(
        name = name,
        copts = COPTS + copts,
        linkopts = linkopts + ["-fsanitize=fuzzer"],
        tags = tags + ["fuzz", "manual"],
        deps = deps,
        **kwargs
    )
