"""That each kind of node of the installed cudnn-frontend has a program: what the package has is read from it, the
methods of a graph and its C++ headers of nodes; what runs is found by making every case of cases.py.
"""

import glob
import os
import re

import cudnn

import versions
from cases import CASES

# Methods of a graph that add no node.
_OTHERS = {
    "build", "build_operation_graph", "build_plan_at_index", "build_plans", "check_support", "create_execution_plan",
    "create_execution_plans", "deselect_behavior_notes", "deselect_engines", "deselect_numeric_notes",
    "deselect_workspace_greater_than", "deserialize", "execute", "execute_plan_at_index", "get_behavior_notes",
    "get_behavior_notes_for_plan_at_index", "get_engine_count", "get_execution_plan_count", "get_knobs_for_engine",
    "get_plan_name_at_index", "get_workspace_size", "get_workspace_size_plan_at_index", "key", "populate_cuda_graph",
    "query_tensor_attributes_of_uid", "select_behavior_notes", "select_numeric_notes", "serialize", "tensor",
    "tensor_like", "tensor_scalar", "update_cuda_graph", "validate",
    # 1.32's
    "backend_plan_entries", "context", "find_tensor", "get_cuda_graph_retention", "get_engine_and_knobs_at_index",
    "get_inputs", "get_node", "get_outputs", "inspect", "nodes", "plans", "select_plan", "selected_engine", "tensors",
}
# Linear attention and state-space models, for which 1.32 has kernels of its own and asks no library.
_OWN = {name + part for name in ("gdn", "gdn2", "gdp", "kda", "mamba2")
        for part in ("", "_bwd", "_summary", "_summary_bwd")}
# Other names of a method.
_ALIASES = {"scaled_dot_product_flash_attention": "sdpa", "scaled_dot_product_flash_attention_backward": "sdpa_backward"}
# Operations that the frontend refuses before it asks a library of an older version, and those without a program.
_LATER = set() if versions.HAS_TRANSPOSE else {"transpose"}
_LATER |= set() if versions.HAS_ROPE else {"rope", "rope_backward"}
_LATER |= set() if versions.HAS_SLICE else {"slice"}
_LATER |= set() if versions.HAS_GROUPED_GRADIENT else {"moe_grouped_matmul_bwd"}
_UNDONE = {"sdpa_mxfp8", "sdpa_mxfp8_backward"}
# Headers of nodes that are not called as their method is: by methods, or by programs of frontend_nodes.cc.
_HEADERS = {
    "adaptive_layernorm": {"adalayernorm", "adalayernorm_backward"},
    "bn_finalize": {"nodes:bn_finalize"},
    "dbn": {"batchnorm_backward"},
    "dbn_weight": {"nodes:dbn_weight"},
    "diagonal_band_mask": {"sdpa"},
    "dln": {"layernorm_backward"},
    "matmul_fp8": {"sdpa_fp8"},
    "paged_cache_load": {"sdpa"},
    "pointwise": {"add"},
    "resample": {"nodes:resample_max", "nodes:resample_max_index", "nodes:resample_average"},
    "rng": {"nodes:rng"},
    "scaled_dot_product_flash_attention": {"sdpa", "sdpa_backward", "sdpa_fp8"},
    "sdpa_fp8_bwd": {"sdpa_fp8_backward"},
    "sdpa_support_surface": {"sdpa"},
    "softmax": {"sdpa"},
}


class _Recorder:
    """A graph that keeps the names of the methods that are asked for."""

    def __init__(self, graph, names):
        self._graph, self._names = graph, names

    def __getattr__(self, name):
        self._names.add(name)
        return getattr(self._graph, name)


def _used(new_builder):
    names = set()

    def recorded(**options):
        b = new_builder(**options)
        b.graph = _Recorder(b.graph, names)
        return b

    for make in CASES.values():
        make(recorded)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "frontend_nodes.cc"), encoding="utf-8") as source:
        names |= {"nodes:" + name for name in re.findall(r'^    {"(\w+)",', source.read(), re.M)}
    return names


def _headers():
    """Of the package, which installs them beside itself."""
    packages = os.path.dirname(os.path.dirname(cudnn.__file__))
    paths = glob.glob(os.path.join(packages, "include", "cudnn_frontend", "node", "*.h"))
    return {os.path.splitext(os.path.basename(path))[0] for path in paths}


class Kinds:
    """A mix-in for a TestCase with `new_builder`."""

    def test_every_kind_has_a_program(self):
        used = _used(self.new_builder)
        methods = {name for name in dir(cudnn.pygraph) if not name.startswith("_")} - _OTHERS - _OWN
        for name, same in _ALIASES.items():
            if not hasattr(cudnn.pygraph, name):
                continue  # 1.32 has the short names alone
            self.assertEqual(getattr(cudnn.pygraph, name).__doc__, getattr(cudnn.pygraph, same).__doc__, name)
        self.assertEqual(methods - used - set(_ALIASES) - _LATER - _UNDONE, set(), "methods without a case")
        self.assertEqual((_LATER | _UNDONE) & used, set(), "these have cases by now")
        headers = _headers()
        self.assertGreater(len(headers), 20)
        self.assertEqual(set(_HEADERS) - headers, set(), "the package has no such nodes")
        for header in sorted(headers - _LATER - _UNDONE):
            self.assertEqual(_HEADERS.get(header, {header}) - used, set(), f"node {header} has no program")
