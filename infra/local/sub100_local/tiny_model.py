"""A tiny random Llama, made on the spot for tests: real enough for vLLM, small enough to make in seconds.

Only numpy and tokenizers are needed, so that the control environment can make it; the weights are seeded,
so that every machine makes the same model. Its text is noise, but deterministic noise.
"""

import json
import struct
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

BOS: Final = "<|bos|>"
EOS: Final = "<|eos|>"
SPECIAL: Final = (BOS, EOS, "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% if tools %}{{ '<|system|>Call these: <tool_call>{name, arguments}</tool_call>' }}"
    "{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
HIDDEN: Final = 256
INTERMEDIATE: Final = 688
LAYERS: Final = 4
HEADS: Final = 4
KV_HEADS: Final = 2
HEAD_DIM: Final = 64
CONTEXT: Final = 8192
VOCABULARY: Final = 4096

_READY: Final = "ready-3"


def make(directory: Path) -> Path:
    """Write the model unless it is there already; returns ``directory``."""
    if (directory / _READY).exists():
        return directory
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    vocab_size = tokenizer.get_vocab_size()
    ids = tokenizer.get_vocab()
    bos, eos, pad = (ids[token] for token in SPECIAL[:3])
    _write_json(directory / "config.json", model_config(vocab_size, bos, eos, pad))
    _write_json(
        directory / "generation_config.json", {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    )
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "pad_token": SPECIAL[2],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    write_safetensors(directory / "model.safetensors", random_weights(vocab_size))
    (directory / _READY).touch()
    return directory


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE trained on the standard library's sources: any text has an encoding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    sources = sorted(Path(json.__file__).parent.parent.glob("*.py"))[:120]
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in sources)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def model_config(vocab_size: int, bos: int, eos: int, pad: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }


def random_weights(vocab_size: int) -> dict[str, np.ndarray[Any, np.dtype[np.uint16]]]:
    """bf16 bit patterns by tensor name.

    Projections are four times as large as transformers' own initialisation (0.02): with that, the model
    just repeats its last input token, and an answer computed on wrong KV would look right.
    """
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int, scale: float = 0.08) -> np.ndarray[Any, np.dtype[np.uint16]]:
        return bf16(random.normal(0.0, scale, (rows, columns)).astype(np.float32))

    ones = bf16(np.ones(HIDDEN, np.float32))
    weights = {"model.embed_tokens.weight": matrix(vocab_size, HIDDEN, 0.02), "model.norm.weight": ones}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{at}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{at}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
            f"{at}.input_layernorm.weight": ones,
            f"{at}.post_attention_layernorm.weight": ones,
        }
    return weights


def bf16(values: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """Round float32 to bfloat16 bit patterns, half to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray[Any, np.dtype[np.uint16]]]) -> None:
    """safetensors: u64 header length, JSON header (8-aligned), then the tensors' bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
