"""From a question to a unit vector: ``minilm`` in this process, ``endpoint`` over HTTP, both behind ``api``.

``bounded`` is what the service holds: no caller waits longer than its time-out, and an embedder that is
dead or slow costs nothing until a probe finds it well. ``vocab.txt`` is that of ``bert-base-uncased`` and
of all-MiniLM-L6-v2 (Google and sentence-transformers, Apache-2.0).
"""
