"""What models.py and operators.py have in common: their options, and rows of what was right, wrong or skipped."""
import argparse
import concurrent.futures
import json
import os


def parser(description, only):
    """Options of a comparison; `only` says what --only is a part of."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("library")
    made.add_argument("--only", default="", help=f"part of '{only}', a regular expression")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    made.add_argument("--seconds", type=int, default=3600, help="for all")
    made.add_argument("--out")
    return made


class Verdicts:
    def __init__(self, path):
        """Rows, and all answers with them, go to the file of that name each time that `keep` is called; None is no file."""
        self.path, self.rows, self.answers = path, [], []

    def add(self, name, right, text, prints=True):
        """`right` is None for what was skipped."""
        self.rows.append({"name": name, "right": right, "text": text})
        if prints:
            print(f"{ {True: 'ok     ', False: 'FAILED ', None: 'skipped'}[right]} {name}: {text}", flush=True)

    def keep(self, answers):
        self.answers += answers
        if self.path:
            with open(self.path, "w") as file:
                json.dump({"rows": self.rows, "answers": self.answers}, file)

    def end(self):
        """Prints the last line; the exit status."""
        count = {right: sum(row["right"] is right for row in self.rows) for right in (True, False, None)}
        print(f"{count[True]} passed, {count[False]} failed, {count[None]} skipped")
        return 1 if count[False] or not count[True] else 0


def when_complete(groups):
    """Yields each key of key -> [future] once all of its futures are done, in the order in which they are."""
    keys = {future: key for key, futures in groups.items() for future in futures}
    left = {key: len(futures) for key, futures in groups.items()}
    for future in concurrent.futures.as_completed(keys):
        left[keys[future]] -= 1
        if not left[keys[future]]:
            yield keys[future]
