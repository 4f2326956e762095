"""The devices that tests of the whole interface run on without a GPU, and what libraries they need."""

LIBCUDNN = [
    "//api:libcudnn.so.8",
    "//api:libcudnn.so.9",
]

CPU_DATA = ["//runtime/cpu:libkiln_cpu.so"]
CPU_ENV = {
    "KILN_CPU_PLUGIN": "$(rootpath //runtime/cpu:libkiln_cpu.so)",
    "KILN_DEVICE": "cpu",
}

# A driver that runs nothing, and a compiler beside it that compiles nothing.
STANDIN_DATA = [
    "//tests/support/cuda_standin:libcuda_standin.so",
    "//tests/support/minimal_cuda:libnvrtc_minimal.so",
]
STANDIN_ENV = {
    "KILN_DEVICE": "cuda",
    "KILN_LIBCUDA": "$(rootpath //tests/support/cuda_standin:libcuda_standin.so)",
    "KILN_TEST_NVRTC": "$(rootpath //tests/support/minimal_cuda:libnvrtc_minimal.so)",
}

# A test on both, as (name, data, env).
CPU_AND_STANDIN = [
    ("cpu", CPU_DATA, CPU_ENV),
    ("standin", STANDIN_DATA, STANDIN_ENV),
]
