"""Repositories for libraries that a machine may lack.

Where one is missing, its target is incompatible with every platform, so `bazel build //...` and
`bazel test //...` leave out what depends on it, and naming such a target says what is missing.
"""

_PRESENT = """
cc_library(
    name = "{name}",
    hdrs = glob({globs}),
    defines = {defines},
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

_ABSENT = """
# Looked for: {looked_for}
cc_library(
    name = "{name}",
    target_compatible_with = ["@kiln//third_party:absent_library"],
    visibility = ["//visibility:public"],
)
"""

def _first_with(ctx, roots, file):
    for root in roots:
        if root and ctx.path(root + "/" + file).exists:
            return root
    return None

def _llvm_impl(ctx):
    roots = ["/usr/lib/llvm-" + ctx.attr.version]
    root = _first_with(ctx, roots, "include/llvm/IR/Module.h")
    if not root:
        ctx.file("BUILD", _ABSENT.format(name = "llvm", looked_for = roots))
        return
    ctx.symlink(root + "/include", "include")
    ctx.file("BUILD", _PRESENT.format(
        name = "llvm",
        # Every header would be thousands of inputs of each action; a new LLVM brings a new VCSRevision.
        globs = ["include/llvm/Support/VCSRevision.h", "include/llvm/Config/*.h"],
        defines = ["_GNU_SOURCE", "__STDC_CONSTANT_MACROS", "__STDC_FORMAT_MACROS", "__STDC_LIMIT_MACROS"],
        linkopts = ["-L" + root + "/lib", "-lLLVM-" + ctx.attr.version],
    ))

llvm = repository_rule(
    implementation = _llvm_impl,
    attrs = {"version": attr.string(mandatory = True)},
    doc = "LLVM as one shared library: @llvm//:llvm.",
    local = True,
)

def _cuda_headers_impl(ctx):
    roots = [ctx.os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    root = _first_with(ctx, roots, "include/cuda.h")
    if not root:
        ctx.file("BUILD", _ABSENT.format(name = "headers", looked_for = roots))
        return
    ctx.symlink(root + "/include", "include")
    ctx.file("BUILD", _PRESENT.format(
        name = "headers",
        globs = ["include/*.h"],
        defines = [],
        linkopts = [],
    ))

cuda_headers = repository_rule(
    implementation = _cuda_headers_impl,
    doc = "The CUDA toolkit's headers, for tests: @cuda_headers//:headers.",
    environ = ["CUDA_HOME"],
    local = True,
)
