"""Write tickets.csv: 3,000 invented letters to a shop, each with the queue that it belongs to. One in 25 is misfiled.

python examples/tickets.py
"""

import csv
import random

QUEUES = {
    "billing": "charged twice; no refund; wrong invoice; price changed; card declined; receipt is missing",
    "delivery": "parcel never came; sent to my old address; arrived broken; no tracking; courier left it outside",
    "login": "cannot sign in; forgot the password; code never arrives; account is locked; email is not accepted",
    "returns": "want to send it back; wrong size; color is not as shown; need a return label; changed my mind",
    "technical": "app crashes; page stays empty; search finds nothing; photos do not load; update does not install",
}
OPENINGS = "Hello; Hi there; Good morning; Dear team; Once more; Sorry to bother you; Please help"
THINGS = "the shoes; my lamp; a phone case; the blue jacket; two books; a coffee machine; this watch; the desk"
TIMES = "since Monday; for the third time; today; last week; after the update; again; on the phone and at home"
ENDS = "Please advise.; Thanks!; What can I do?; I have waited long enough.; Best wishes; It is urgent."


def tickets(count=3000, seed=0):
    """Yield texts with their queues."""
    rng = random.Random(seed)

    def pick(options):
        return rng.choice(options.split("; "))

    for _ in range(count):
        queue = rng.choice(list(QUEUES))
        matter = [pick(QUEUES[queue]), f"it is about {pick(THINGS)}", pick(TIMES)]
        rng.shuffle(matter)
        filed = rng.choice(list(QUEUES)) if rng.random() < 0.05 else queue
        yield f"{pick(OPENINGS)}, {', '.join(matter)}. {pick(ENDS)}", filed


if __name__ == "__main__":
    with open("tickets.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("message", "queue"), *tickets()])
    print("tickets.csv: 3,000 letters")
