"""vLLM's single-process executor, also on CPUs.

On CPUs vLLM replaces ``uni`` by its multi-process executor, because that one can bind OpenMP threads. We
do not bind (``environment``), and the extra process costs each step two hops over shared memory, whose
reader spins, and a segment in /dev/shm that a kill would leave behind.
"""

from vllm.v1.executor.uniproc_executor import UniProcExecutor

from . import runner_patch


class InlineExecutor(UniProcExecutor):  # type: ignore[misc]
    """The worker runs in the engine core's own process, on a runner that is patched before it is made."""

    def _init_executor(self) -> None:
        runner_patch.install()
        super()._init_executor()
