"""Write `smollm2_text.json`, the text on which the n-gram draft of the real model is fitted.

SmolLM2 wrote it: each prompt below is continued once greedily and once sampled, in the order of `prompts()`, so that
the n-gram model learns the phrases and the spelling that SmolLM2 itself prefers. No prompt here occurs in a chapter,
a test or a benchmark: a draft that had seen the answer would flatter itself. Run `python -m tinyllm.smollm2_text` to
write the file again (about ten minutes); the same model gives the same ids.

The file is a JSON list, one line a continuation: kind, prompt (text), temperature, seed, ids (of the continuation).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from tinyllm.infer.generate import generate
from tinyllm.infer.sample import SamplingParams
from tinyllm.zoo import smollm2

PATH = Path(__file__).with_suffix(".json")
SAMPLED_TEMPERATURE = 0.8

PASSAGES = [
    "The lighthouse on Skerry Point was built in 1871 from grey granite. For ninety years a keeper climbed its "
    "142 steps every evening to light the lamp. In 1961 a machine took over, and the keeper's cottage became a "
    "small museum. Visitors can still see his brass telescope and the logbook in which he wrote down every ship.",
    "Sourdough bread needs only flour, water and salt. The starter is a mixture of flour and water in which wild "
    "yeast and bacteria live. The yeast makes the dough rise and the bacteria give it a sour taste. A baker feeds "
    "the starter every day, and some starters are more than a hundred years old.",
    "The otter is a mammal that spends much of its life in the water. It has thick fur, webbed feet and a strong "
    "tail. Otters eat fish, crabs and frogs. When they rest, sea otters float on their backs and sometimes hold "
    "each other's paws so that they do not drift apart.",
    "Copper is a soft, reddish metal that conducts heat and electricity very well. People have used it for more "
    "than eight thousand years. Mixed with tin it becomes bronze, and mixed with zinc it becomes brass. Today "
    "most copper is used in wires, motors and pipes.",
    "In the spring the village held its market on the first Saturday of every month. Farmers brought eggs, cheese "
    "and honey. A woman from the next valley sold wooden spoons that she had carved in the winter. By noon the "
    "square was full, and the baker had nothing left.",
    "A glacier is a large mass of ice that moves slowly over land. It forms where more snow falls in winter than "
    "melts in summer. Over many years the snow is pressed into ice. As the glacier moves, it grinds the rock "
    "beneath it and carves wide valleys.",
    "The first public library in the town opened in 1904 with 2,300 books. It was open on three evenings a week, "
    "and a reader could borrow one book at a time. The librarian, Miss Harrow, knew the name of every reader. "
    "After the war the library moved to a larger building near the station.",
    "Bees tell each other where flowers are by dancing. A bee that has found food returns to the hive and walks "
    "in the shape of an eight. The direction of the dance shows the direction of the flowers, and its length "
    "shows how far away they are. Karl von Frisch described this dance in the 1940s.",
]
QUOTING_TASKS = [
    "Repeat the following text word for word:\n\n{passage}",
    "{passage}\n\nCopy the second sentence of this text exactly, then explain it in simple words.",
    "Write a short summary of this text and quote one sentence from it:\n\n{passage}",
]
RAW_QUOTING = "Text:\n{passage}\n\nThe same text again:\n"

SNIPPETS = [
    "def celsius_to_fahrenheit(c):\n    return c * 9 / 5 + 32\n",
    "def is_palindrome(word):\n    word = word.lower()\n    return word == word[::-1]\n",
    "class Account:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n"
    "        self.balance = balance\n\n    def deposit(self, amount):\n"
    "        self.balance += amount\n",
    "def read_lines(path):\n    f = open(path)\n    lines = f.readlines()\n    f.close()\n    return lines\n",
    "def largest(numbers):\n    best = numbers[0]\n    for n in numbers:\n        if n > best:\n"
    "            best = n\n    return best\n",
    "function greet(name) {\n  const message = 'Hello, ' + name + '!';\n  console.log(message);\n}\n",
    "for i in range(1, 21):\n    if i % 2 == 0:\n        print(i, 'is even')\n    else:\n        print(i, 'is odd')\n",
    "SELECT title, year\nFROM films\nWHERE year > 1990\nORDER BY year DESC;\n",
]
CODE_TASKS = [
    "Add a docstring to this code and return the whole code:\n\n```\n{code}```",
    "Rename the variables in this code so that they are easier to understand:\n\n```\n{code}```",
    "Explain what this code does, then write it again with comments:\n\n```\n{code}```",
]
RAW_CODE = "# Before\n{code}\n# After: the same code with type hints and comments\n"

LIST_TASKS = [
    "List ten vegetables that grow in a cool climate.",
    "Write a packing list for a weekend in the mountains.",
    "Give me eight ideas for a birthday party at home.",
    "List the steps to plant a tree.",
    "Name twelve musical instruments and the family each belongs to.",
    "What are the main parts of a bicycle? Answer with a list.",
    "List seven habits that help people sleep well.",
    "Write a shopping list for a vegetable soup.",
    "Name ten jobs that existed two hundred years ago.",
    "List the advantages and disadvantages of working from home.",
]
RAW_LISTS = [
    "Colours of the rainbow and things that have them:\n1. Red: a ripe cherry\n2. Orange: a pumpkin\n3.",
    "Tools in the workshop:\n- hammer\n- saw\n- screwdriver\n-",
    "Monday: Maths\nTuesday: History\nWednesday: Biology\nThursday:",
    "apple, banana, cherry, date, elderberry,",
    "Animals of the farm and their young:\n1. Cow - calf\n2. Sheep - lamb\n3. Horse - foal\n4.",
    "Rules of the swimming pool:\n1. Shower before you swim.\n2. Do not run.\n3.",
    "| Month | Days |\n|---|---|\n| January | 31 |\n| February | 28 |\n| March |",
    "Chapter 1: The Arrival\nChapter 2: The Old House\nChapter 3: The Letter\nChapter 4:",
]

PROSE_TASKS = [
    "Write a short story about a clockmaker who loses a key.",
    "Explain to a child why the sea is salty.",
    "Describe a rainy evening in a harbour town.",
    "What makes a good teacher? Write two paragraphs.",
    "Write a letter to a friend who has moved to another country.",
    "Explain how a thermos flask keeps tea hot.",
    "Why do leaves change their colour in autumn?",
    "Write a short speech for the opening of a community garden.",
    "What did people eat on long sea voyages?",
    "Tell me something interesting about volcanoes.",
]
RAW_PROSE = [
    "The old bridge had been closed for a year when",
    "My grandmother always said that patience is",
    "Most people think that deserts are empty, but",
    "The history of chess begins in",
    "When the train finally arrived, Elena saw that",
    "There are three reasons why cities plant trees.",
    "A compass works because",
    "The doctor put down her pen and looked at",
    "In the nineteenth century, letters were",
    "Learning to cook is",
]

MULTILINGUAL_TASKS = [
    "Translate into French: The museum is closed on Mondays.",
    "Translate into Spanish: My brother works in a hospital and lives near the park.",
    "Translate into German: We would like two coffees and one glass of water.",
    "Translate into Italian: The train to Milan leaves at nine o'clock.",
    "How do you say 'thank you very much' in five European languages?",
    "Écris trois phrases sur ton repas préféré.",
    "Describe tu ciudad en un párrafo corto.",
    "Was kann man an einem Wochenende in den Bergen machen?",
    "Scrivi una breve lettera a un amico.",
    "Explique em poucas palavras o que é um vulcão.",
]
RAW_MULTILINGUAL = [
    "Il était une fois une petite fille qui",
    "La ciudad de Sevilla es conocida por",
    "Der Winter in den Alpen ist",
    "La cucina italiana è",
    "O rio Tejo nasce",
    "English: good morning. French: bonjour. Spanish:",
    "Les chats dorment beaucoup parce que",
    "En el año 1492,",
    "Die Kinder spielen im Garten und",
    "Het weer in Nederland is",
]

ARITHMETIC_TASKS = [
    "What is 27 + 45? Show your steps.",
    "A box holds 12 pencils. How many pencils are in 7 boxes?",
    "Calculate 15% of 240.",
    "Anna has 50 euros and spends 18 euros. How much is left?",
    "What is 144 divided by 12?",
    "A car drives 180 km in 3 hours. What is its average speed?",
    "Solve for x: 3x + 7 = 22.",
    "What is the area of a rectangle that is 9 m long and 4 m wide?",
    "Write the multiplication table of 8.",
    "How many minutes are there in 5 hours and 20 minutes?",
]
RAW_ARITHMETIC = [
    "7 + 8 = 15\n9 + 6 = 15\n12 + 5 =",
    "3 x 1 = 3\n3 x 2 = 6\n3 x 3 = 9\n",
    "Half of 10 is 5. Half of 18 is",
    "2, 4, 8, 16,",
    "100 - 1 = 99\n100 - 2 = 98\n100 - 3 =",
    "Question: Tom buys 3 books for 8 dollars each. How much does he pay?\nAnswer:",
    "The square of 5 is 25. The square of 6 is",
    "5, 10, 15, 20,",
    "1/2 + 1/4 =",
    "There are 24 hours in a day, so in a week there are",
]


class Prompt(NamedTuple):
    """A prompt, its kind, and whether it is sent in the chat format."""

    kind: str
    text: str
    chat: bool


def prompts() -> Iterator[Prompt]:
    """Every prompt, kind by kind, instructions in the chat format and openings as they are."""
    for i, passage in enumerate(PASSAGES):
        yield Prompt("quoting", RAW_QUOTING.format(passage=passage), False)
        for task in (QUOTING_TASKS[i % 3], QUOTING_TASKS[(i + 1) % 3]):
            yield Prompt("quoting", task.format(passage=passage), True)
    for i, code in enumerate(SNIPPETS):
        yield Prompt("code", RAW_CODE.format(code=code), False)
        for task in (CODE_TASKS[i % 3], CODE_TASKS[(i + 1) % 3]):
            yield Prompt("code", task.format(code=code), True)
    for kind, tasks, openings in [
        ("list", LIST_TASKS, RAW_LISTS),
        ("prose", PROSE_TASKS, RAW_PROSE),
        ("multilingual", MULTILINGUAL_TASKS, RAW_MULTILINGUAL),
        ("arithmetic", ARITHMETIC_TASKS, RAW_ARITHMETIC),
    ]:
        yield from (Prompt(kind, text, True) for text in tasks)
        yield from (Prompt(kind, text, False) for text in openings)


def requests(tok: Any) -> list[dict[str, Any]]:
    """What is asked of the model, in order: each prompt greedily, then sampled with its number as the seed."""
    found = []
    for seed, prompt in enumerate(prompts()):
        text = tok.chat(prompt.text) if prompt.chat else prompt.text
        for temperature in (0.0, SAMPLED_TEMPERATURE):
            found.append({"kind": prompt.kind, "prompt": text, "temperature": temperature, "seed": seed})
    return found


def read() -> list[dict[str, Any]]:
    """The continuations in the file: each request of `requests` with its `ids`."""
    entries: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return entries


def continue_request(model: Any, tok: Any, request: dict[str, Any], max_tokens: int = 180) -> list[int]:
    """The ids with which the model continues a request, up to the end of its message."""
    p = SamplingParams(temperature=request["temperature"], seed=request["seed"], max_tokens=max_tokens)
    return generate(model, tok, request["prompt"], p, eos_ids=(tok.eos_id,)).ids


def main() -> None:
    """Continue every request and write the file."""
    model, tok = smollm2()
    lines = []
    for request in tqdm(requests(tok), unit="text"):
        entry = request | {"ids": continue_request(model, tok, request)}
        lines.append(json.dumps(entry, ensure_ascii=False, separators=(",", ":")))
    PATH.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
