#!/usr/bin/python3
"""Writes weights for llama-server: a language model that knows a few sentences.

    weights.py FILE

A model of one layer whose attention and feed-forward part do nothing: the residual stream is the
last token, as a unit vector, and the output matrix holds how likely each token is behind it.  So
it ends its answers by itself, and has a vocabulary, a chat template and real counts of tokens.
"""

import array
import math
import struct
import sys

SENTENCES = """the job is done . the job was called once . the answer is in the table . the queue is empty .
a call was made and the answer was stored . the worker waits for the next job . a wish is never shortened .
the lease is over and the job is ready . the worker stored the answer once ."""

UNSEEN = -30.0
END_AFTER_SENTENCE = 0.5
HEAD = 64
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5
UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1
BOS, EOS = 1, 2
TEMPLATE = ("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


def vocabulary():
    """Returns the tokens as (bytes, type), and the ids of the words."""
    tokens = [(b"<unk>", UNKNOWN), (b"<s>", CONTROL), (b"</s>", CONTROL)]
    tokens += [(b"<0x%02X>" % value, BYTE) for value in range(256)]
    ids = {}
    for word in [":"] + SENTENCES.split():
        if word not in ids:
            ids[word] = len(tokens)
            tokens.append((word.encode() if word in ".:" else "\u2581".encode() + word.encode(), NORMAL))
    return tokens, ids


def transitions(ids):
    """Returns {token: {next token: probability}}."""
    counts = {}
    before = ids[":"]
    for word in SENTENCES.split():
        if before == ids["."]:
            counts.setdefault(ids[":"], {}).setdefault(ids[word], 0)
            counts[ids[":"]][ids[word]] += 1
        counts.setdefault(before, {}).setdefault(ids[word], 0)
        counts[before][ids[word]] += 1
        before = ids[word]
    chances = {token: {after: count / sum(row.values()) for after, count in row.items()} for token, row in counts.items()}
    full_stop = {after: chance * (1 - END_AFTER_SENTENCE) for after, chance in chances[ids["."]].items()}
    chances[ids["."]] = {**full_stop, EOS: END_AFTER_SENTENCE}
    return chances


def floats(count, value=0.0):
    return array.array("f", [value]) * count


def tensors(size, width, chances):
    """Returns (name, dimensions, data) of each tensor; a matrix has one row an output."""
    embedding, output = floats(size * width), floats(size * width)
    scale = math.sqrt(width)        # what the norm makes of a unit vector
    for token in range(size):
        embedding[token * width + token] = 1.0
        row = chances.get(token, {EOS: 1.0})
        for after in range(size):
            chance = row.get(after, 0)
            output[after * width + token] = (math.log(chance) if chance else UNSEEN) / scale
    yield "token_embd.weight", (width, size), embedding
    yield "output_norm.weight", (width,), floats(width, 1.0)
    yield "output.weight", (width, size), output
    for name in ("attn_norm", "ffn_norm"):
        yield "blk.0.%s.weight" % name, (width,), floats(width, 1.0)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield "blk.0.%s.weight" % name, (width, width), floats(width * width)
    yield "blk.0.ffn_gate.weight", (width, HEAD), floats(width * HEAD)
    yield "blk.0.ffn_up.weight", (width, HEAD), floats(width * HEAD)
    yield "blk.0.ffn_down.weight", (HEAD, width), floats(width * HEAD)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def member(key, kind, value):
    packed = {UINT32: lambda: struct.pack("<I", value), FLOAT32: lambda: struct.pack("<f", value),
              STRING: lambda: text(value), ARRAY: lambda: value}[kind]()
    return text(key) + struct.pack("<I", kind) + packed


def array_of(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def members(tokens, width):
    size = len(tokens)
    llama = {"context_length": 4096, "embedding_length": width, "block_count": 1, "feed_forward_length": HEAD,
             "attention.head_count": width // HEAD, "attention.head_count_kv": width // HEAD,
             "rope.dimension_count": HEAD, "vocab_size": size}
    return [member("general.architecture", STRING, "llama"), member("general.name", STRING, "sentences"),
            member("general.file_type", UINT32, 0)] + \
        [member("llama." + key, UINT32, value) for key, value in llama.items()] + \
        [member("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-6),
         member("tokenizer.ggml.model", STRING, "llama"),
         member("tokenizer.ggml.tokens", ARRAY, array_of(STRING, [text(token) for token, _ in tokens])),
         member("tokenizer.ggml.scores", ARRAY, array_of(FLOAT32, [struct.pack("<f", -float(i)) for i in range(size)])),
         member("tokenizer.ggml.token_type", ARRAY, array_of(INT32, [struct.pack("<i", kind) for _, kind in tokens])),
         member("tokenizer.ggml.bos_token_id", UINT32, BOS), member("tokenizer.ggml.eos_token_id", UINT32, EOS),
         member("tokenizer.ggml.unknown_token_id", UINT32, 0), member("tokenizer.chat_template", STRING, TEMPLATE)]


def main():
    tokens, ids = vocabulary()
    width = -(-len(tokens) // HEAD) * HEAD
    metadata = members(tokens, width)
    infos, data = [], b""
    for name, dimensions, values in tensors(len(tokens), width, transitions(ids)):
        infos.append(text(name) + struct.pack("<I%dQ" % len(dimensions), len(dimensions), *dimensions) + struct.pack("<IQ", 0, len(data)))
        data += values.tobytes() + bytes(-(len(values) * 4) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(metadata)) + b"".join(metadata) + b"".join(infos)
    with open(sys.argv[1], "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


main()
