"""The proto rules under the names that Bazel's own files load; Kiln has no protos."""

proto_lang_toolchain = native.proto_lang_toolchain
proto_library = native.proto_library
