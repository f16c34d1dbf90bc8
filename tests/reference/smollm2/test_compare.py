#!/usr/bin/env python3
"""compare.py against planted differences: python3 tests/reference/smollm2/test_compare.py"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402

TIE = compare.BF16_RELATIVE
# At place 1 the two logits are a tie (0.01 of 16.0 is 0.16 x 2^-8), at places 0 and 2 they are not.
PROMPT = {
    "name": "planted",
    "prompt": [1, 2],
    "tokens": [10, 20, 30],
    "top_ids": [[10, 11], [20, 21], [30, 31]],
    "top_logits": [[16.0, 12.0], [16.0, 15.99], [16.0, 15.9]],
}


class Judge(unittest.TestCase):
    def verdict(self, answer, count=3, tie=TIE, prompt=PROMPT):
        return compare.judge(prompt, answer, count, tie)

    def test_how_far_logits_moved_is_found_up_to_the_first_difference(self):
        logits = [0.0] * 3 * 40
        for at, (ids, values) in enumerate(zip(PROMPT["top_ids"], ([16, 12], [15.99, 16], [0, 9]))):
            for token, value in zip(ids, values):
                logits[at * 40 + token] = value
        moves = compare.moved(PROMPT, [10, 21, 30], logits)
        self.assertEqual(len(moves), 2)
        self.assertAlmostEqual(moves[0], 0)
        self.assertAlmostEqual(moves[1], 0.02 / 16 / TIE)

    def test_moves_as_large_as_pytorchs_pass_and_larger_ones_fail(self):
        self.assertTrue(compare.judge_moves([0.4] * 90 + [1.5] * 8 + [4.4] * 2)[0])
        self.assertFalse(compare.judge_moves([0.6] * 100)[0])
        self.assertFalse(compare.judge_moves([0.4] * 80 + [1.7] * 20)[0])
        self.assertFalse(compare.judge_moves([0.4] * 95 + [4.6] * 5)[0])

    def test_equal_ids_pass(self):
        self.assertEqual(self.verdict([10, 20, 30]), (True, "3 ids equal"))

    def test_a_difference_where_there_is_no_tie_fails(self):
        good, why = self.verdict([11, 20, 30])
        self.assertFalse(good)
        self.assertIn("0 ids equal, then 11 instead of 10", why)

    def test_the_second_choice_at_a_tie_passes_and_is_shown(self):
        good, why = self.verdict([10, 21, 30])
        self.assertTrue(good)
        self.assertIn("logits 16.0000 and 15.9900, 0.16 x 2^-8 apart, a tie", why)

    def test_nothing_after_a_tie_is_compared(self):
        self.assertTrue(self.verdict([10, 21, 99])[0])

    def test_a_tie_does_not_excuse_an_earlier_difference(self):
        self.assertFalse(self.verdict([99, 21, 30])[0])

    def test_any_other_id_at_a_tie_fails(self):
        good, why = self.verdict([10, 99, 30])
        self.assertFalse(good)
        self.assertIn("of another id", why)

    def test_a_difference_just_over_the_tie_fails(self):
        self.assertFalse(self.verdict([10, 20, 31])[0])  # 0.1 of 16.0 is 1.6 x 2^-8
        self.assertTrue(self.verdict([10, 20, 31], tie=2 * TIE)[0])

    def test_the_tie_is_relative_to_the_larger_of_negative_logits(self):
        prompt = dict(PROMPT, top_logits=[[-16.0, -16.05], [0.0, 0.0], [0.0, 0.0]])
        self.assertTrue(self.verdict([11, 0, 0], prompt=prompt)[0])

    def test_too_few_and_too_many_ids_fail(self):
        self.assertEqual(self.verdict([10, 20]), (False, "2 ids instead of 3"))
        self.assertFalse(self.verdict([10, 20, 30, 40])[0])

    def test_a_shorter_run_is_judged_by_its_own_length(self):
        self.assertTrue(self.verdict([10, 20], count=2)[0])


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.reference = self.write("greedy.json", json.dumps({"generate": 3, "prompts": [PROMPT]}))

    def write(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def run_compare(self, *args):
        command = [sys.executable, str(HERE / "compare.py"), self.reference, *args]
        return subprocess.run(command, capture_output=True, text=True)

    def test_good_ids_of_a_file_exit_0_with_a_line_a_prompt(self):
        result = self.run_compare("--ids", self.write("ids", "10,20,30\n"))
        self.assertEqual((result.returncode, result.stdout), (0, "pass  planted  3 ids equal\n"))

    def test_bad_ids_exit_1(self):
        result = self.run_compare("--ids", self.write("ids", "10,20,31\n"))
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("FAIL  planted  2 ids equal"))

    def test_a_command_gets_the_prompt_and_its_last_line_is_read(self):
        program = """
import array, sys
assert sys.argv[1:3] == ['--prompt=1,2', '--generate=3']
logits = array.array('f', [0] * 120)
for at, (first, second) in enumerate([(16, 12), (16, 15.99), (16, 15.9)]):
    logits[at * 40 + 10 * (at + 1)], logits[at * 40 + 10 * (at + 1) + 1] = first, second
open(sys.argv[3].removeprefix('--logits='), 'wb').write(logits.tobytes())
print(sys.argv[1:])
print('IDS')
"""
        result = self.run_compare("--", sys.executable, "-c", program.replace("IDS", "10,20,30"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("pass  fidelity two logits moved by 0.00 (P50)", result.stdout)
        result = self.run_compare("--", sys.executable, "-c", program.replace("IDS", "1"))
        self.assertIn("1 ids instead of 3", result.stdout)

    def test_a_failing_command_and_junk_are_errors(self):
        result = self.run_compare("--", sys.executable, "-c", "raise SystemExit(3)")
        self.assertEqual(result.returncode, 1)
        self.assertIn("exits 3", result.stderr)
        result = self.run_compare("--", sys.executable, "-c", "print('no ids')")
        self.assertIn("not comma separated ids", result.stderr)

    def test_the_wrong_number_of_lines_is_an_error(self):
        result = self.run_compare("--ids", self.write("ids", "10,20,30\n10,20,30\n"))
        self.assertIn("2 lines of ids for 1 prompts", result.stderr)


class Reference(unittest.TestCase):
    def test_the_committed_reference_agrees_with_itself(self):
        reference = json.loads((HERE / "greedy.json").read_text(encoding="utf-8"))
        self.assertEqual(len(reference["prompts"]), 6)
        for prompt in reference["prompts"]:
            self.assertEqual([ids[0] for ids in prompt["top_ids"]], prompt["tokens"])
            self.assertEqual(len(prompt["tokens"]), reference["generate"])
            self.assertEqual(len(prompt["top_logits"]), reference["generate"])
            for first, second in prompt["top_logits"]:
                self.assertGreaterEqual(first, second)
            good, _ = compare.judge(prompt, prompt["tokens"], reference["generate"], TIE)
            self.assertTrue(good)


if __name__ == "__main__":
    unittest.main()
