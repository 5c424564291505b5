"""An EAGLE head for the tiny model that drafts the last token again: right where the model repeats itself.

It hands on that token's embedding, of which the model's output layer (the same matrix) makes the token.
"""

import json
from pathlib import Path

import numpy as np

from sub100_local.tiny_model import HEAD_DIM, HEADS, HIDDEN, INTERMEDIATE, KV_HEADS, bf16, write_safetensors


def make_eagle_head(model: Path, directory: Path) -> Path:
    """Write the head of ``model`` to ``directory``, which must not exist."""
    directory.mkdir(parents=True)
    config = json.loads((model / "config.json").read_text()) | {"num_hidden_layers": 1}
    (directory / "config.json").write_text(json.dumps(config))
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
        "post_attention_layernorm": (HIDDEN,),
    }
    weights = {f"layers.0.{name}.weight": bf16(np.zeros(shape, np.float32)) for name, shape in shapes.items()}
    of_embedding, of_state = np.eye(HIDDEN, dtype=np.float32), np.zeros((HIDDEN, HIDDEN), np.float32)
    weights["fc.weight"] = bf16(np.hstack([of_embedding, of_state]))
    write_safetensors(directory / "model.safetensors", weights)
    return directory
