"""Which term each entry of the log has, in a few numbers: terms never fall, so runs of them are enough."""

from __future__ import annotations

from bisect import bisect_right


class Terms:
    """Runs of equal terms over the indexes `base..last`; the base is the place before the first entry."""

    def __init__(self, base_index: int, base_term: int) -> None:
        self._starts = [base_index]
        self._terms = [base_term]
        self.last_index = base_index

    @property
    def base_index(self) -> int:
        """The place before the first entry, whose term is known too."""
        return self._starts[0]

    @property
    def last_term(self) -> int:
        """Term of the last entry, or of the base."""
        return self._terms[-1]

    def append(self, index: int, term: int) -> None:
        """The next entry has this term."""
        assert index == self.last_index + 1, "entries follow each other without gaps"
        assert term >= self._terms[-1], "terms never fall along the log"
        if term != self._terms[-1]:
            self._starts.append(index)
            self._terms.append(term)
        self.last_index = index

    def extend_to(self, index: int) -> None:
        """The entries up to `index` have the term of the last one."""
        assert index >= self.last_index, "the log only grows here"
        self.last_index = index

    def at(self, index: int) -> int | None:
        """The term of the entry, None outside `base..last`."""
        if not self._starts[0] <= index <= self.last_index:
            return None
        return self._terms[bisect_right(self._starts, index) - 1]

    def cut_from(self, index: int) -> None:
        """Forget the entries from `index` on."""
        assert index > self._starts[0], "the base stays"
        while self._starts[-1] >= index:
            self._starts.pop()
            self._terms.pop()
        self.last_index = min(self.last_index, index - 1)

    def drop_to(self, index: int) -> None:
        """Forget the entries up to `index`, which becomes the base."""
        term = self.at(index)
        assert term is not None, "the new base lies in the log"
        position = bisect_right(self._starts, index) - 1
        self._starts = [index, *self._starts[position + 1 :]]
        self._terms = [term, *self._terms[position + 1 :]]
