"""What the tests of this tree have in common."""

# Dependencies of tests that interpret the cases of tests/cases.
CASE_DEPS = [
    "//compiler",
    "//ir/graph",
    "//tests/support:case_graph",
    "//tests/support:cases",
    "//tests/support:random_graph",
    "//tests/support:run_tiles",
]
