"""Headers that are compiled once: the standard library, fmt and GoogleTest take more than half of a compilation.

    precompiled_header(name = "library", header = "library.h", copts = COPTS)

makes library.h and library.h.gch in the output folder. A target that has the rule in `deps` and
`-include $(BINDIR)/<package>/library.h` in `copts` reads the second in place of the first. GCC takes it only where
the options that change code are those that it was made with, and reads the plain header otherwise.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file(ctx.attr.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    compiled = ctx.actions.declare_file(ctx.attr.name + ".h.gch")
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        # --force_pic is not an option of tools that the build itself runs, which are in folders named "host".
        use_pic = "host" not in ctx.bin_dir.path,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        # A header by itself is warned of its #pragma once, which no option of its own turns off.
        arguments = flags + ["-w", "-iquote", ".", "-x", "c++-header", "-c", ctx.file.header.path, "-o", compiled.path],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([ctx.file.header] + ctx.files.includes, transitive = [toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "PrecompileHeader",
        progress_message = "Compiling " + ctx.file.header.short_path,
    )
    # Headers of the tree come along, since LLVM's macros make GCC read the plain header in place of the compiled one.
    headers = depset([header, compiled] + ctx.files.includes)
    return [CcInfo(compilation_context = cc_common.create_compilation_context(headers = headers))]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "includes": attr.label_list(allow_files = [".h"], doc = "headers of the tree that it includes"),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
