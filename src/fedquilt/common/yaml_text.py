"""Parse YAML that may be wrong or hostile: size, nesting, aliases and numbers are bounded. The one place where YAML is read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fedquilt.common.printable import fault_of_name, printable

if TYPE_CHECKING:
    import yaml

LARGEST = 2**18  # bytes of a document
DEEPEST = 50  # levels of nesting, aliases followed
MOST_VALUES = 20_000  # with each alias counted as all that it stands for
WIDEST = 2**64  # whole numbers are smaller


class YamlError(ValueError):
    """What is wrong with a document, in words that follow its name: "is nested too deep (line 3); correct it ..."."""

    def __init__(self, message: str, line: int | None = None, advice: str = "correct it and try again") -> None:
        where = "" if line is None else f" (line {line})"
        super().__init__(f"{message}{where}; {advice}")


def parse_yaml(text: str | bytes) -> Any:
    """The value that `text` is the YAML (or JSON) of, in Python's own types; `YamlError` with the reason where it has none."""
    if len(text) > LARGEST:
        raise YamlError(f"is larger than {LARGEST // 2**10} KiB", advice="a file of options has some lines")
    try:
        return _loader()(text.decode("utf-8-sig") if isinstance(text, bytes) else text).get_single_data()
    except YamlError:
        raise
    # PyYAML has errors of its own, and raises many of Python's: for what is no UTF-8, a date that is none, wrong uses of tags.
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlError("is not valid YAML", None if mark is None else mark.line + 1) from error


@cache
def _loader() -> Any:
    import yaml

    class Bounded(yaml.SafeLoader):
        """A safe loader that refuses a document as soon as it is too deep or, its aliases followed, too large."""

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self._depth = self._values = 0
            self._extent: dict[int, tuple[int, int]] = {}  # by node: values in it, and levels

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.peek_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                aimed = self.anchors.get(event.anchor)
                if aimed is not None and id(aimed) not in self._extent:
                    raise YamlError(f"has an alias *{printable(str(event.anchor))} inside of what it stands for", line)
                return super().compose_node(parent, index)
            self._depth += 1
            self._values += 1
            if self._values > MOST_VALUES:
                raise YamlError(f"has more than {MOST_VALUES:,} values", line)
            if self._depth > DEEPEST:
                raise YamlError(f"is nested more than {DEEPEST} levels deep", line)
            node: Any = super().compose_node(parent, index)
            self._depth -= 1
            self._extent[id(node)] = self._checked_extent(node, line)
            return node

        def _checked_extent(self, node: yaml.Node, line: int) -> tuple[int, int]:
            parts: list[Any] = []
            if isinstance(node, yaml.SequenceNode):
                parts = node.value
            elif isinstance(node, yaml.MappingNode):
                _check_distinct(node)
                parts = [part for pair in node.value for part in pair]
            elif isinstance(node, yaml.ScalarNode) and (fault := fault_of_name(node.value)):
                raise YamlError(f"has text with {fault}", line)
            extents = [self._extent[id(part)] for part in parts]
            values, levels = 1 + sum(one[0] for one in extents), 1 + max((one[1] for one in extents), default=0)
            if values > MOST_VALUES:
                raise YamlError(f"stands for more than {MOST_VALUES:,} values", line)
            if levels > DEEPEST:
                raise YamlError(f"is nested more than {DEEPEST} levels deep", line)
            return values, levels

        def construct_yaml_int(self, node: Any) -> int:
            # Digits are counted first: converting thousands of them takes time, and above 4,300 Python refuses.
            text = str(self.construct_scalar(node))
            if len(text) > 100 or not -WIDEST < (value := super().construct_yaml_int(node)) < WIDEST:
                raise YamlError("has a whole number of more than 64 bits", node.start_mark.line + 1)
            return value

    Bounded.add_constructor("tag:yaml.org,2002:int", Bounded.construct_yaml_int)
    return Bounded


def _check_distinct(node: Any) -> None:
    """Refuse a key that occurs twice: YAML would take the last one silently."""
    import yaml

    names: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in names:
                raise YamlError(f"says '{printable(key.value)}' twice", key.start_mark.line + 1, "keep one of them")
            names.add(key.value)
