"""What programs do with cudnn-frontend beside running its first choice: engines and knobs by hand, all plans,
names and notes, serialised plans, filters, errors. A mix-in for a TestCase with `new_builder` and `handle`.
"""

import os

import cudnn

import versions
from attention import Attention
from cases import CASES

_T = cudnn.data_type
_SAMPLES = ("conv_scale_bias_relu_fp16", "matmul_bias_gelu_bf16", "softmax_of_matmul_fp32", "diamond_fp16")


class Flow:
    """Tests of the whole interface."""

    def _make(self, name):
        return CASES[name](self.new_builder)

    def _graph(self, name):
        """A case up to the operation graph."""
        b = self._make(name)
        b.graph.validate()
        b.graph.build_operation_graph()
        return b

    def test_version(self):
        """What is asked for, or the newest."""
        version = os.environ.get("KILN_CUDNN_VERSION", "9.28.1").split(".")
        self.assertEqual(cudnn.backend_version(), sum(int(n) * f for n, f in zip(version, (10000, 100, 1))))

    def test_every_plan_is_right(self):
        for name in _SAMPLES:
            b = self._make(name)
            b.plan(cudnn.build_plan_policy.ALL)
            count = b.graph.get_execution_plan_count()
            self.assertGreater(count, 0)
            for index in range(count):
                with self.subTest(case=name, plan=b.graph.get_plan_name_at_index(index)):
                    b.graph.build_plan_at_index(index)
                    b.execute(plan_index=index)

    def test_plan_names_are_distinct(self):
        b = self._make("conv_scale_bias_relu_fp16")
        b.plan()
        names = [b.graph.get_plan_name_at_index(i) for i in range(b.graph.get_execution_plan_count())]
        self.assertTrue(all("eng" in name for name in names), names)
        # Mode FALLBACK may repeat what mode A said.
        self.assertGreaterEqual(2 * len(set(names)), len(names), names)

    def test_engines_and_knobs(self):
        """Every engine id below the count takes the graph, and runs it with each value of each knob."""
        b = self._graph("matmul_bias_gelu_bf16")
        engines = b.graph.get_engine_count()
        self.assertGreater(engines, 0)
        for engine in range(engines):
            knobs = b.graph.get_knobs_for_engine(engine)
            choices = [{}]
            for knob in knobs:
                self.assertLessEqual(knob.min_value, knob.max_value)
                self.assertGreater(knob.stride, 0)
                choices += [{knob.type: v} for v in range(knob.min_value, knob.max_value + 1, knob.stride)]
            for choice in choices:
                with self.subTest(engine=engine, choice=choice):
                    fresh = self._graph("matmul_bias_gelu_bf16")
                    fresh.graph.create_execution_plan(engine, choice)
                    try:
                        fresh.graph.check_support()
                    except cudnn.cudnnGraphNotSupportedError:
                        self.assertTrue(choice, "an engine that describes a graph builds it by default")
                        continue
                    fresh.graph.build_plans()
                    fresh.execute()

    def test_engine_0_takes_every_graph(self):
        """NVIDIA's samples hard-code it."""
        for name in ("matmul_bias_gelu_bf16", "conv_scale_bias_relu_fp16", "diamond_fp16"):
            with self.subTest(name):
                b = self._graph(name)
                b.graph.create_execution_plan(0, {})
                b.graph.check_support()
                b.graph.build_plans()
                b.execute()

    def test_engine_that_does_not_exist(self):
        b = self._graph("diamond_fp16")
        with self.assertRaises(Exception):
            b.graph.get_knobs_for_engine(b.graph.get_engine_count())

    def test_notes(self):
        b = self._make("conv_scale_bias_relu_fp16")
        b.plan()
        self.assertIn(cudnn.behavior_note.RUNTIME_COMPILATION, b.graph.get_behavior_notes())
        for i in range(b.graph.get_execution_plan_count()):
            notes = b.graph.get_behavior_notes_for_plan_at_index(i)
            self.assertIn(cudnn.behavior_note.RUNTIME_COMPILATION, notes)
            self.assertNotIn(cudnn.behavior_note.CUBLASLT_DEPENDENCY, notes)

    def test_filters(self):
        b = self._graph("conv_scale_bias_relu_fp16")
        b.graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
        b.graph.deselect_numeric_notes([cudnn.numerical_note.WINOGRAD, cudnn.numerical_note.FFT])
        b.graph.deselect_workspace_greater_than(1 << 30)
        b.graph.check_support()
        b.graph.build_plans()
        b.execute()

    def test_filter_that_leaves_nothing(self):
        b = self._graph("conv_scale_bias_relu_fp16")
        b.graph.create_execution_plans([cudnn.heur_mode.A])
        b.graph.deselect_behavior_notes([cudnn.behavior_note.RUNTIME_COMPILATION])
        with self.assertRaises(cudnn.cudnnGraphNotSupportedError):
            b.graph.check_support()
            b.graph.build_plans()

    def test_serialised_plans_run(self):
        for name in _SAMPLES:
            with self.subTest(case=name):
                b = self._make(name)
                b.plan()
                data = b.graph.serialize()
                again = cudnn.pygraph(handle=self.handle)
                again.deserialize(self.handle, data)
                # The first graph's tensors name the uids.
                self.assertEqual(again.get_workspace_size(), b.graph.get_workspace_size())
                b.execute(graph=again)

    def test_extra_uids_are_ignored(self):
        b = self._make("diamond_fp16")
        b.plan()
        b.execute(extra={987654: 0, 987655: 4096})

    def test_kernel_cache_serves_other_extents(self):
        """Dynamic shapes: a graph for each extent, one kernel cache for all of them."""
        cache = cudnn.create_kernel_cache()
        for rows in (3, 8, 21):
            b = self.new_builder(io=_T.HALF, kernel_cache=cache, is_dynamic_shape_enabled=True)
            a = b.input((1, rows, 32))
            w = b.input((1, 32, 24))
            b.output(b.pointwise("relu", b.matmul(a, w)))
            b.run()

    def test_stream_of_the_handle(self):
        before = cudnn.get_stream(self.handle)
        cudnn.set_stream(self.handle, before)
        self.assertEqual(cudnn.get_stream(self.handle), before)
        self._make("unary_tanh_fp16").run()

    def test_plain_build(self):
        """The shorthand that does all steps."""
        b = self._make("wgrad_fp16")
        b.graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        b.execute()

    def test_repeated_execution(self):
        b = self._make("conv_residual_swish_fp16")
        b.plan()
        for _ in range(3):
            b.execute()

    def test_same_graph_twice(self):
        for _ in range(2):
            self._make("matmul_4d_scalar_bf16").run()

    def test_unsupported_graph_says_why(self):
        """Extents that do not broadcast: the library's sentence reaches the program."""
        b = self.new_builder(io=_T.FLOAT)
        x = b.input((4, 8, 16))
        y = b.input((4, 5, 16))
        tensor = b.graph.add(x.tensor, y.tensor)
        tensor.set_output(True).set_dim([4, 8, 16]).set_stride([128, 16, 1])
        with self.assertRaises(Exception) as caught:
            b.plan()
        message = str(caught.exception) + cudnn.get_last_error_string()
        self.assertTrue("5" in message and "8" in message, message)

    @versions.only_if(versions.HAS_CACHE_COUNTERS)
    def test_kernel_cache_counts(self):
        """A plan that is added is an entry and a revision; other extents share it; text keeps entries alone."""

        def add(cache, rows, policy=cudnn.build_plan_policy.HEURISTICS_CHOICE):
            b = self.new_builder(io=_T.HALF, kernel_cache=cache, is_dynamic_shape_enabled=True)
            b.output(b.pointwise("relu", b.matmul(b.input((1, rows, 32)), b.input((1, 32, 24)))))
            b.plan(policy)
            b.execute()
            return cache.size(), cache.revision()

        cache = cudnn.create_kernel_cache()
        size, revision = add(cache, 8)
        self.assertEqual(size, 1)
        self.assertEqual(add(cache, 21), (size, revision))
        more = add(cache, 8, cudnn.build_plan_policy.ALL)
        self.assertGreater(more[0], size)
        self.assertGreater(more[1], revision)
        again = cudnn.create_kernel_cache()
        again.deserialize(cache.serialize())
        self.assertEqual(add(again, 13), (more[0], 0))

    @versions.only_if(versions.HAS_WORKSPACE_OF_EXTENTS)
    def test_other_extents_at_execution(self):
        """A plan for 4x16x32 by 32x24 serves fewer rows, which the caller describes."""
        b = self.new_builder(io=_T.FLOAT, is_override_shape_enabled=True)
        x, w = b.input((4, 16, 32)), b.input((4, 32, 24))
        y = b.output(b.pointwise("relu", b.matmul(x, w)))
        b.plan()
        few = self.new_builder(io=_T.FLOAT)
        operands = [few.input((4, 5, 32)), few.input((4, 32, 24))]
        few.output(few.pointwise("relu", few.matmul(*operands)))
        few.plan()
        uids = [node.tensor.get_uid() for node in (x, w, y)]
        shapes = [[4, 5, 32], [4, 32, 24], [4, 5, 24]]
        strides = [[160, 32, 1], [768, 24, 1], [120, 24, 1]]
        pack = dict(zip(uids, few.pointers(key=lambda tensor: tensor.get_uid()).values()))
        size = b.graph.get_workspace_size(self.handle, uids, shapes, strides)
        b.graph.execute(pack, few.workspace(size), handle=self.handle, override_uids=uids, override_shapes=shapes,
                        override_strides=strides)
        few.space.synchronize()
        few.compare()

    @versions.only_if(versions.HAS_GRAPH_RETENTION)
    def test_retention_of_cuda_graphs(self):
        for retention in (cudnn.cuda_graph_retention.NONE, cudnn.cuda_graph_retention.PER_GRAPH):
            b = self.new_builder(io=_T.HALF, cuda_graph_retention=retention)
            b.output(b.pointwise("relu", b.matmul(b.input((1, 8, 32)), b.input((1, 32, 24)))))
            b.run()

    def test_deterministic_gradient_with_less_workspace(self):
        """From 9.25 on the frontend has it by the number of an engine of NVIDIA's and knobs of it, and by no attribute
        that another engine could go by: refused, where another order of sums would be a silent mistake."""
        limit = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT"
        os.environ[limit] = "0"
        self.addCleanup(os.environ.pop, limit)
        b = self.new_builder(io=_T.HALF)
        Attention(b, right=0).backward(deterministic=True)
        if not versions.HAS_ENGINE_OF_ORDERED_SUMS:
            return b.run()
        with self.assertRaisesRegex(Exception, "Invalid engine id"):
            b.plan()
