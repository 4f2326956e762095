"""Which release of cuDNN a client sees: the oldest of what the library says and of the headers that the installed
cudnn-frontend was compiled with. Operations and options of later releases are refused by the frontend itself, so that
no program of this folder asks for them.
"""

import cudnn

# Those of 1.23's package are older than 9.22, those of 1.32's of 9.28. No frontend says it; rope is 9.24's.
_HEADERS = 92800 if hasattr(cudnn.pygraph, "rope") else 92100
SEEN = min(cudnn.backend_version(), _HEADERS)

HAS_TRANSPOSE = HAS_GROUPED_GRADIENT = SEEN >= 92200
HAS_ROPE = HAS_CUMULATED = HAS_GROUPED_REDUCTION = SEEN >= 92400
HAS_LOGICAL_RESHAPE = SEEN >= 92200
HAS_UNIFIED_PARTS = SEEN >= 92200  # masks, biases, sinks and dropout of the one operation for attention
HAS_UNIFIED_BYTES = SEEN >= 92500
HAS_ENGINE_OF_ORDERED_SUMS = SEEN >= 92500
HAS_LATER_GRADIENTS = SEEN >= 92600
HAS_LOG2 = HAS_CACHE_COUNTERS = SEEN >= 92700
# Compiled with headers that have the operation, the frontend has no other way for a slice.
HAS_SLICE = cudnn.backend_version() >= 92200 or _HEADERS < 92200
HAS_WORKSPACE_OF_EXTENTS = SEEN >= 92300
HAS_GRAPH_RETENTION = SEEN >= 92800


def only_if(has_it):
    """A test of what the frontend sends to libraries of some release: other releases do not have the test, which is
    not a skip, for there is nothing that a better machine would check.
    """
    return (lambda test: test) if has_it else (lambda test: None)
