"""What models.py and operators.py do without PyTorch: forked processes that answer, die or are late, and judging."""

import os
import signal
import sys
import time
import unittest

import forks
import models
import operator_cases
import operators
import sequences


def answer(request, tell):
    """What the forked processes of this test do, by the request's word."""
    tell({"half": request["do"]})
    if request["do"] == "raise":
        raise ValueError("seven is too many")
    if request["do"] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if request["do"] == "sleep":
        time.sleep(60)
    tell({"whole": request["do"], "pid": os.getpid()})


class ForksTest(unittest.TestCase):
    def ask(self, *requests, jobs=2):
        return [future.result(timeout=30) for future in forks.Side(__file__, dict(os.environ), jobs).ask(list(requests))]

    def test_each_request_has_a_process(self):
        answers = self.ask(*[{"do": f"work {i}"} for i in range(7)])
        self.assertEqual([f"work {i}" for i in range(7)], [each["whole"] for each in answers])
        self.assertEqual(7, len({each["pid"] for each in answers}))
        self.assertFalse(any("died" in each for each in answers))

    def test_who_dies_leaves_what_was_told_and_why(self):
        raised, killed, fine = self.ask({"do": "raise"}, {"do": "kill"}, {"do": "work"})
        self.assertEqual(("raise", True), (raised["half"], "seven is too many" in raised["died"]))
        self.assertEqual(("kill", "exit status -9: "), (killed["half"], killed["died"]))
        self.assertEqual("work", fine["whole"])

    def test_time_ends(self):
        now = time.monotonic()
        late, never = self.ask({"do": "sleep", "until": now + 1}, {"do": "work", "until": now - 1})
        self.assertEqual("sleep", late["half"])
        self.assertRegex(late["died"], "not done after [01] s")
        self.assertEqual({"not_begun": True}, never)
        self.assertLess(time.monotonic() - now, 20)

    def test_a_side_that_does_not_start_answers(self):
        side = forks.Side("/no/such/script.py", dict(os.environ), 1)
        self.assertIn("ended with status 2", side.ask([{"do": "work"}])[0].result(timeout=30)["died"])


def step(off, y_off=1e-5):
    return {"off": off, "worst_off": 3 * off, "worst": "fc.weight", "y_off": y_off}


class ModelsTest(unittest.TestCase):
    def judged(self, precision, ours, nvidia, rounded=()):
        sides = [{("v8", "heuristics"): {"libraries": ["/lib/ours.so"], **side, "layouts": {"contiguous": {"seconds": {}, **side}}}}
                 for side in (ours, nvidia)]
        return {name: right for name, right, _ in models.judge("/lib/ours.so", precision, *sides, rounded)}

    def test_gradients(self):
        way = "v8 heuristics contiguous"
        for ours, right in ((1e-4, True), (1.4e-4, True), (2e-4, False), (float("nan"), False)):
            self.assertEqual({way: right}, self.judged("float32", {"step": step(ours)}, {"step": step(1e-4)}), ours)
        self.assertEqual({way: False}, self.judged("float32", {"step": step(1e-4, 1e-2)}, {"step": step(1e-4)}))

    def test_gradients_that_rounding_alone_changes(self):
        way, nvidia, rounded = "v8 heuristics contiguous", {"step": step(1e-4)}, [step(1e-5), step(2e-3)]
        for precision, ours, right in (("float32", 2.9e-3, True), ("float32", 3.1e-3, False), ("tf32", 2.9e-3, False)):
            self.assertEqual({way: right}, self.judged(precision, {"step": step(ours)}, nvidia, rounded), (precision, ours))

    def test_curves(self):
        falling = [2.0 - 0.03 * i for i in range(50)]
        flat = [2.0] * 50
        for ours, nvidia, right in ((falling, falling, True), ([x + 0.09 for x in falling], falling, True),
                                    ([x + 0.11 for x in falling], falling, None), (flat, falling, False), (flat, flat, False),
                                    (falling[:30] + [float("nan")] * 20, falling, False)):
            answers = [{"step": step(1e-4), "curve": each} for each in (ours, nvidia)]
            self.assertEqual(right, self.judged("float32", *answers)["v8 heuristics contiguous curve"])

    def test_curves_of_several_ways(self):
        falling = [2.0 - 0.03 * i for i in range(50)]
        ways = [("v8", "heuristics"), ("v8", "benchmark")]
        for away, right in ((0.13, True), (0.15, False)):
            ours, nvidia = ({way: {"libraries": ["/lib/ours.so"], "layouts": {"contiguous": {"seconds": {}, "curve": [x + d for x in falling]}}}
                             for way, d in zip(ways, distances)} for distances in ((away, 0), (0, 0.02)))
            judged = {name: verdict for name, verdict, _ in models.judge("/lib/ours.so", "float32", ours, nvidia)}
            self.assertEqual(right, judged["v8 heuristics contiguous curve"])

    def test_what_both_refuse_is_skipped(self):
        self.assertEqual({"v8 heuristics contiguous": None}, self.judged("float32", {"error": "no"}, {"error": "no"}))
        self.assertEqual({"v8 heuristics contiguous": False}, self.judged("float32", {"error": "no"}, {"step": step(1e-4)}))

    def test_what_died_has_failed_and_what_did_not_begin_is_skipped(self):
        way = "v8 heuristics"
        self.assertEqual({way: False}, self.judged("float32", {"died": "of age"}, {"step": step(1e-4)}))
        self.assertEqual({way: None}, self.judged("float32", {"not_begun": True}, {"step": step(1e-4)}))
        self.assertEqual({way: False}, self.judged("float32", {"step": step(1e-4), "libraries": ["/lib/theirs.so"]}, {"step": step(1e-4)}))

    def test_each_way_once(self):
        every = models.ways("")
        self.assertEqual(7 * 4 * 2 * 2, len(every))
        self.assertEqual({("contiguous", "channels_last")}, set(map(tuple, every.values())))
        self.assertEqual({("unet", "tf32", "v7", "benchmark"): ["channels_last"]}, models.ways("unet tf32 v7 benchmark channels_last"))


class SequencesTest(unittest.TestCase):
    def judged(self, ours, nvidia, libraries=("/lib/ours.so",)):
        sides = ({"libraries": list(libraries), "curves": ours}, {"libraries": [], "curves": nvidia})
        return {name: right for name, right, _ in sequences.judge("/lib/ours.so", ["tf32"], *sides)}

    def test_curves_follow_nvidias_as_pytorchs_own_do(self):
        falling = [2.0 - 0.008 * i for i in range(200)]
        for away, right in ((0.13, True), (0.15, False)):
            nvidia = {"tf32": falling, "tf32 own": [x + 0.02 for x in falling]}
            self.assertEqual({"tf32": right}, self.judged({"tf32": [x + away for x in falling]}, nvidia))
        self.assertEqual({"": False}, self.judged({"tf32": falling}, {"tf32": falling}, ["/lib/theirs.so"]))


class OperatorsTest(unittest.TestCase):
    def right(self, ours, nvidia, rounding=2.0**-24):
        whole = {"strides": [[9, 1]], "off": {}}
        return operators.judge_case(rounding, {**whole, **ours}, {**whole, **nvidia})[0]

    def test_errors(self):
        def off(norm, farthest):
            return {"off": {"y0": [norm, farthest]}}

        self.assertTrue(self.right(off(2e-7, 2e-7), off(0, 0)))  # a few roundings
        self.assertFalse(self.right(off(1e-6, 2e-7), off(0, 0)))
        self.assertFalse(self.right(off(2e-7, 1e-6), off(0, 0)))
        self.assertTrue(self.right(off(1.4e-5, 2.9e-5), off(1e-5, 1e-5)))
        self.assertFalse(self.right(off(float("inf"), 0), off(1e-5, 1e-5)))

    def test_draws_of_rounded_inputs_are_right_too(self):
        off = {"off": {"d0": [0.04, 0.1]}}
        nvidia = {"off": {"d0": [1e-4, 1e-4]}}
        self.assertFalse(self.right(off, nvidia))
        self.assertFalse(self.right(off, {**nvidia, "rounded": [{"d0": [0.02, 0.1]}]}))
        self.assertTrue(self.right(off, {**nvidia, "rounded": [{"d0": [0, 0]}, {"d0": [0.03, 0.06]}]}))

    def test_float64_is_judged_by_float64(self):
        def right(distance):
            off = {"off": {"dd0": [distance, distance]}}
            same = {"off": {"dd0": [0, 0]}}
            setting = operators.SETTINGS["float64"]
            (_, verdict, _), = operators.judge("", setting, {"cases": {"a": {"strides": [], **off}}}, {"cases": {"a": {"strides": [], **same}}})
            return verdict

        self.assertTrue(right(6 * 2.0**-53))
        self.assertFalse(right(2.0**-48))

    def test_each_family_once(self):
        together = [name for names in operator_cases.TOGETHER for name in names]
        self.assertEqual(sorted(operator_cases.FAMILIES), sorted(together))

    def test_sequences_are_not_asked_for_twice(self):
        self.assertTrue(operators.is_asked("float32", "lstm"))
        self.assertFalse(operators.is_asked("float16_v7", "lstm"))
        self.assertTrue(operators.is_asked("float16_v7", "conv2d"))

    def test_refusals_layouts_and_bits(self):
        self.assertFalse(self.right({"error": "no"}, {}))
        self.assertIsNone(self.right({"error": "no"}, {"error": "neither"}))
        self.assertTrue(self.right({}, {"error": "no"}))
        self.assertFalse(self.right({"strides": [[1, 9]]}, {}))
        self.assertFalse(self.right({"differs": ["d0"]}, {"differs": []}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        forks.serve(answer, int(sys.argv[2]))
        sys.exit(0)
    unittest.main()
