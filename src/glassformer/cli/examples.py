"""Examples for `--help`. `tests/test_commands.py` runs each of them as printed.

`notes.txt` stands for the user's text, `runs/majority` and `runs/text` for runs of `glassformer train`.
"""

EXAMPLES = {
    "glassformer": [
        "glassformer demo",
        "glassformer train majority",
        "glassformer inspect runs/majority 11110222",
    ],
    "demo": ["glassformer demo", "glassformer demo --out runs/first"],
    "train": [
        "glassformer train majority",
        "glassformer train text --data notes.txt --steps 200 --set width=64",
        "glassformer train text --data notes.txt --from smollm2 --lora",
        "glassformer train --resume runs/majority",
    ],
    "eval": ["glassformer eval runs/majority", "glassformer eval runs/text --checkpoint latest --json"],
    "tasks": ["glassformer tasks"],
    "tokens": [
        "glassformer tokens notes.txt --out notes.tokens",
        "glassformer tokens notes.txt --out pieces.tokens --tokenizer bpe --bpe-size 400",
    ],
    "replay": [
        "glassformer train induction --record --out runs/recorded",
        "glassformer replay runs/recorded",
        "glassformer replay runs/recorded --step 1 --step 2",
    ],
    "inspect": ["glassformer inspect runs/majority 11110222", "glassformer inspect runs/text --theme dark"],
    "explore": [
        "glassformer explore",
        "glassformer explore runs/majority --prompt 11110222",
        "glassformer explore smollm2 --port 8765 --no-browser",
    ],
    "look": [
        "glassformer look runs/majority 11110222",
        "glassformer look runs/majority 11110222 attribution --token 2 --against 1",
        'glassformer look smollm2 "The capital of France is" lens',
        "glassformer look runs/majority 11110222 patching --other 22220111",
    ],
    "check": ["glassformer check"],
    "params": ["glassformer params gpt2", "glassformer params llama-3.1-8b --length 4096 --dtype bfloat16"],
    "plan": ["glassformer plan gpt3 --set vocab=50304 --mesh data=2,fsdp=64,tensor=8 --device-memory 80GB"],
    "generate": [
        'glassformer generate runs/text "The " --max-new-tokens 40',
        'echo "The capital of France is" | glassformer generate smollm2 --prompt - --max-new-tokens 8 --temperature 0',
    ],
    "chat": [
        "glassformer chat smollm2",
        'echo "What is the capital of France?" | glassformer chat smollm2 --temperature 0',
    ],
    "tokenize": ['glassformer tokenize runs/text "The loop"', 'glassformer tokenize smollm2 "The loop"'],
    "embed": ['glassformer embed minilm "a cat" "a kitten" "a car"'],
    "verify": ["glassformer verify minilm"],
    "export": ["glassformer export minilm exported", "glassformer export runs/text text.gguf"],
    "predict": ["glassformer predict runs/majority 11110222", 'glassformer predict runs/text "The "'],
    "settings": ["glassformer settings", "glassformer settings text"],
    "runs": ["glassformer runs"],
    "compare": ["glassformer compare runs/majority runs/text --out comparison"],
    "pull": ["glassformer pull smollm2", "glassformer pull minilm"],
    "models": ["glassformer models"],
}
"""Lines of a shell for each command, and for `glassformer` itself."""
