#!/usr/bin/env python3
"""Text to token ids and back, for models with byte-level BPE that splits text as SmolLM does.

    python3 examples/tokenizer.py encode FILE "text"        # ids, comma separated
    python3 examples/tokenizer.py decode FILE 1,2,3         # text
    python3 examples/tokenizer.py chat FILE "question"      # ids of the prompt that asks it
    gpuos run ... | python3 examples/tokenizer.py answer FILE -    # text, token by token

FILE is the tokenizer.json that examples/smollm2_weights.py writes. Standard library only; the ids
are those of Hugging Face's tokenizers.
"""
import argparse
import codecs
import io
import json
import re
import sys
import unicodedata

# What SmolLM2's own chat template puts before a conversation that brings no system message.
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Tokenizer:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
        self.ids = spec["model"]["vocab"]
        self.tokens = {i: token for token, i in self.ids.items()}
        self.specials = {token["content"]: token["id"] for token in spec["added_tokens"]}
        merges = spec["model"]["merges"]
        self.rank = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        longest_first = sorted(self.specials, key=len, reverse=True)
        self.special_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def encode(self, text):
        """The ids of a text; special tokens written in it, as <|im_end|>, count as such."""
        ids = []
        for part in self.special_pattern.split(text):
            ids += [self.specials[part]] if part in self.specials else self.encode_plain(part)
        return ids

    def encode_plain(self, text):
        """The ids of a text in which nothing is special."""
        ids = []
        for word in words(text):
            data = word.encode("utf-8", "surrogateescape")
            symbols = "".join(BYTE_TO_CHAR[byte] for byte in data)
            # A byte that the vocabulary lacks is dropped, as Hugging Face does.
            ids += [self.ids[token] for token in self.merge(symbols) if token in self.ids]
        return ids

    def merge(self, symbols):
        """Joins neighbours, the earliest learnt pair first and the leftmost of equals."""
        parts = list(symbols)
        while len(parts) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(parts, parts[1:])]
            at = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[at] == len(self.rank):
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def decode(self, ids):
        """The text of the ids; bytes that are not UTF-8 (a cut-off letter) become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def token_bytes(self, i):
        token = self.tokens[i]
        special = token in self.specials
        return token.encode() if special else bytes(CHAR_TO_BYTE[char] for char in token)

    def chat(self, question, system=SYSTEM):
        """The ids of a prompt that asks a question; the question cannot smuggle in a role."""
        ids = [] if system is None else self.message("system", system)
        start = self.specials["<|im_start|>"]
        return ids + self.message("user", question) + [start] + self.encode_plain("assistant\n")

    def message(self, role, content):
        start, end = self.specials["<|im_start|>"], self.specials["<|im_end|>"]
        return [start] + self.encode_plain(f"{role}\n{content}") + [end] + self.encode_plain("\n")


# --- bytes as letters ----------------------------------------------------------------------------


def byte_letters():
    """GPT-2 writes each byte as a printable letter: itself, or the next one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


BYTE_TO_CHAR = byte_letters()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


# --- words: what merges never cross --------------------------------------------------------------


def words(text):
    """Splits as SmolLM does: every digit by itself, the rest by GPT-2's pattern.

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
    """
    kinds = [kind_of(char) for char in text]
    at = 0
    while at < len(text):
        end = word_end(text, kinds, at)
        yield text[at:end]
        at = end


def word_end(text, kinds, at):
    if kinds[at] == "digit":
        return at + 1
    for suffix in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        if text.startswith(suffix, at):
            return at + len(suffix)
    # One blank may lead a word of letters or of marks.
    led = text[at] == " " and at + 1 < len(text) and kinds[at + 1] in ("letter", "mark")
    start = at + 1 if led else at
    end = run_end(kinds, start)
    # Of several spaces the last is left to lead the next word, unless a digit or nothing follows.
    if kinds[start] == "space" and end < len(text) and kinds[end] != "digit" and end - start > 1:
        return end - 1
    return end


def run_end(kinds, start):
    end = start
    while end < len(kinds) and kinds[end] == kinds[start]:
        end += 1
    return end


def kind_of(char):
    category = unicodedata.category(char)
    if category[0] == "L":
        return "letter"
    if category[0] == "N":
        return "digit"
    # Python counts the separators U+001C to U+001F as spaces; Unicode's White_Space does not.
    return "space" if char.isspace() and not "\x1c" <= char <= "\x1f" else "mark"


# --- command line --------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=("encode", "decode", "chat", "answer"))
    parser.add_argument("file", metavar="FILE", help="tokenizer.json")
    parser.add_argument("text", help="a text, or for decode comma separated ids; - reads it")
    parser.add_argument("--no-system", action="store_true", help="chat: no system message")
    args = parser.parse_args()
    tokenizer = Tokenizer(args.file)
    if args.command == "answer":
        return print_answer(tokenizer, sys.stdin if args.text == "-" else io.StringIO(args.text))
    text = sys.stdin.read() if args.text == "-" else args.text
    if args.command == "decode":
        print(tokenizer.decode(read_ids(text, tokenizer)))
    elif args.command == "encode":
        print(*tokenizer.encode(text), sep=",")
    else:
        print(*tokenizer.chat(text, None if args.no_system else SYSTEM), sep=",")


def print_answer(tokenizer, file):
    """Prints the text of ids while they arrive; special tokens, as the end, are left out."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for i in arriving_ids(file):
        if tokenizer.tokens[i] not in tokenizer.specials:
            print(end=decoder.decode(tokenizer.token_bytes(i)), flush=True)
    print(decoder.decode(b"", final=True))


def arriving_ids(file):
    word = ""
    while char := file.read(1):
        if char.isdigit():
            word += char
        elif word:
            yield int(word)
            word = ""
    if word:
        yield int(word)


def read_ids(text, tokenizer):
    try:
        ids = [int(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        sys.exit(f"error: ids are numbers, comma separated: {error}")
    for i in ids:
        if i not in tokenizer.tokens:
            sys.exit(f"error: {i} is not a token; the vocabulary has {len(tokenizer.tokens)}")
    return ids


if __name__ == "__main__":
    main()
