"""Small model directories with real tokenizers, made on the spot."""

import json
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

CORPUS = (
    "The capital of France is Paris. A stop string may straddle two tokens.\n",
    "def place(fleet, request):\n    return max(fleet, key=lambda worker: worker.score)\n",
    "Grüße aus Köln, naïve café, 你好世界, สวัสดีครับ, привет, 🙂🙃\n",
) * 4
SPECIAL = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>")
BOS, EOS, USER = 0, 1, 2
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MULTILINGUAL = (
    "flags 🇫🇷🇯🇵 family 👨‍👩‍👧‍👦 skin 👍🏽 accents e\u0301 a\u0308\u0323 rare 𠮷𪚥 "
    "ไทย สวัสดี हिन्दी عربي 한국어 日本語 zero\u200bwidth"
)


def byte_level_model(directory: Path, *, max_model_len: int = 512, template: str | None = TEMPLATE) -> Path:
    """GPT-2's kind: a byte-level BPE that adds <|bos|> to plain text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=480,
            special_tokens=list(SPECIAL),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken("<tool>你", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    config: dict[str, Any] = {"bos_token": "<|bos|>", "eos_token": {"content": "<|eos|>"}}
    if template is not None:
        config["chat_template"] = template
    return _write(directory, tokenizer.to_str(), config, tokenizer.get_vocab_size() + 8, max_model_len)


def byte_fallback_model(directory: Path) -> Path:
    """SentencePiece's kind (Llama 2): ▁ for blanks, and bytes for what the vocabulary lacks."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trained.train_from_iterator(
        (line.encode("ascii", "ignore").decode() for line in CORPUS),
        trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False),
    )
    spec = json.loads(trained.to_str())
    vocab = spec["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    spec["model"]["byte_fallback"] = True
    return _write(directory, json.dumps(spec), {}, len(vocab), 512)


def _write(
    directory: Path, tokenizer: str, config: dict[str, Any], vocab_size: int, max_model_len: int
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(tokenizer)
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "config.json").write_text(
        json.dumps({"vocab_size": vocab_size, "max_position_embeddings": max_model_len, "eos_token_id": EOS})
    )
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, USER]}))
    return directory
