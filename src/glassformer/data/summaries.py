"""Each task in one line, to be read without loading the tasks."""

SUMMARIES = {
    "majority": "the most frequent of 8 tokens from {0, 1, 2}; ties go to the smallest",
    "counting": "count from 1 to 6: one sequence, learned by heart",
    "copy": "repeat a string of letters",
    "reverse": "write a string of letters backward",
    "sort": "sort 6 digits from {0, 1, 2}",
    "addition": "add two numbers of two digits, or of more",
    "multiplication": "multiply two numbers of two digits",
    "modular": "add modulo 97, from half of the table: the setup of grokking",
    "induction": "continue a random sequence that repeats itself",
    "parity": "tell whether the number of ones is even or odd, in steps",
    "brackets": "tell whether brackets of several kinds match",
    "regression": "find a line from its points, and continue it: in-context learning",
    "dates": "dates written in many languages to ISO dates, such as 3. März 2001 to 2001-03-03",
    "text": "continue a text: Python's own documentation, or your file, folder or token file",
    "lines": "write lines like those of a file, such as names",
    "pairs": "source to target, from a TSV file or gettext catalogs (.po, .mo)",
}
