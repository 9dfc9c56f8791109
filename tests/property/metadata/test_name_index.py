"""The index of names against a sorted list."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.metadata.name_index import NameIndex

names = st.integers(0, 4_000).map(lambda number: f"n{number:04}")


class NameIndexMachine(RuleBasedStateMachine):
    """Adds and removes many names at once."""

    def __init__(self) -> None:
        super().__init__()
        self.index = NameIndex()
        self.model: set[str] = set()

    @rule(start=st.integers(0, 4_000), count=st.integers(1, 1_500), step=st.integers(1, 3))
    def add_run(self, start: int, count: int, step: int) -> None:
        for number in range(start, start + count * step, step):
            self.toggle(f"n{number:04}", is_there=True)

    @rule(name=names)
    def add(self, name: str) -> None:
        self.toggle(name, is_there=True)

    @rule(start=st.integers(0, 4_000), count=st.integers(1, 1_500))
    def remove_run(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.toggle(f"n{number:04}", is_there=False)

    def toggle(self, name: str, *, is_there: bool) -> None:
        if is_there and name not in self.model:
            self.index.add(name)
            self.model.add(name)
        elif not is_there and name in self.model:
            self.index.remove(name)
            self.model.remove(name)

    @rule(after=st.one_of(st.none(), names), limit=st.integers(1, 3_000))
    def page(self, after: str | None, limit: int) -> None:
        expected = [name for name in sorted(self.model) if after is None or name > after][:limit]
        assert self.index.page(after, limit) == expected

    @invariant()
    def is_sound(self) -> None:
        assert list(self.index) == sorted(self.model)
        assert len(self.index) == len(self.model)


TestNameIndex = NameIndexMachine.TestCase
