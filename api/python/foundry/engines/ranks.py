# SPDX-License-Identifier: Apache-2.0
"""Ranks of one engine decide together: all of them load, or none does.

A rank that captures runs the collectives of the warm-up, and a rank that loads does not. If they
differed, the engine would hang.

Ranks share NCCL's collectives, whose memory lies in the region and belongs to the process.
"""
import os

import torch

from ..group import gather

DIFFERENT = "the ranks have images of different starts"  # a reason


def of_engine(rank, count, parallel_state):
    """Return the Ranks of an engine. parallel_state: returns the engine's module of that name,
    which has made its groups when the ranks decide.
    """
    return Ranks(rank, count, lambda value: gather(
        parallel_state().get_world_group().cpu_group)(value))


def connect(parallel_state, device):
    """Let all groups of ranks make their communicators now, and not in the warm-up.

    parallel_state: the engine's module of that name. device: of this rank.
    """
    groups = [group() for group in parallel_state._groups.values()]
    for group in groups:  # in the same order in each rank
        if group and group.world_size > 1:
            torch.distributed.all_reduce(torch.full((1,), 0.0, device=device),
                                         group=group.device_group)
    torch.cuda.synchronize()


def nccl_settings():
    """Return what check_configuration() takes: the variables of NCCL that images do not support."""
    return ((os.environ.get("NCCL_RUNTIME_CONNECT", "0") != "0",
             "NCCL that connects later (unset NCCL_RUNTIME_CONNECT)"),
            (os.environ.get("NCCL_CUMEM_ENABLE") == "0",
             "NCCL that does not map its memory (set NCCL_CUMEM_ENABLE=1)"),
            (os.environ.get("NCCL_GRAPH_REGISTER", "0") != "0",
             "graphs that use buffers of other ranks (unset NCCL_GRAPH_REGISTER)"))


def set_up_nccl():
    """Set the variables of NCCL, in all ranks alike, before one uses it."""
    # NCCL allocates what a collective needs when it makes a communicator, in the region. It would
    # do so in the warm-up, and an image would get the state of its connections.
    os.environ["NCCL_RUNTIME_CONNECT"] = "0"
    # A buffer that is registered in a graph has an address in the other ranks, which differs from
    # start to start.
    os.environ["NCCL_GRAPH_REGISTER"] = "0"


def shared_facts(count):
    """Return {key: value} of the facts about what `count` ranks share.

    Graphs have NCCL's kernels, which read what the NCCL of this process makes.
    """
    return {"nccl": ".".join(map(str, torch.cuda.nccl.version()))} if count > 1 else {}


class Ranks:
    """The ranks of an engine, of which this process is number `rank`.

    gather: a function of a value that returns the values of all ranks, by ascending rank. Every
    rank calls it as often as the others.
    """

    def __init__(self, rank, count, gather):
        self.rank, self.count, self._gather = rank, count, gather

    def agree(self, why, same=None):
        """Return None if `why` is None in each rank and `same` is the same value in each rank;
        otherwise a reason, which is the same in all ranks but for those that have one themselves.
        """
        if self.count == 1:
            return why
        found = self._gather((why, same))
        if why is not None:
            return why
        for rank, (reason, _) in enumerate(found):
            if reason is not None:
                return f"rank {rank} starts without its image: {reason}"
        if any(each != found[0] for each in found):
            return DIFFERENT
        return None

    def common(self, values):
        """Return the first of rank 0's `values` that each rank has, or None."""
        first, *others = self._gather(values)
        return next((each for each in first if all(each in more for more in others)), None)

    def first(self, value):
        """Return the value of rank 0."""
        return value if self.count == 1 else self._gather(value)[0]
