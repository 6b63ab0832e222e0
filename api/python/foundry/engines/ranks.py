# SPDX-License-Identifier: Apache-2.0
"""Ranks of one engine decide together: all of them load, or none does.

A rank that captures runs the collectives of the warm-up, and a rank that loads does not. If they
differed, the engine would hang.
"""


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
            return "the ranks have images of different starts"
        return None

    def first(self, value):
        """Return the value of rank 0."""
        return value if self.count == 1 else self._gather(value)[0]
