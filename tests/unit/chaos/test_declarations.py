"""Declared and deleted queues, and what has to be there at the end."""

from chaos.declarations import Declarations

ONE = ("shop", "one")


def test_an_answered_declare_has_to_be_there():
    declarations = Declarations(declares_asked={ONE}, declares_answered={ONE})

    assert list(declarations.broken({ONE})) == []
    assert list(declarations.broken(set())) == ["queue one of shop was declared and is gone"]


def test_a_declare_without_an_answer_may_be_there_or_not():
    declarations = Declarations(declares_asked={ONE})

    assert [list(declarations.broken(found)) for found in ({ONE}, set())] == [[], []]


def test_a_queue_whose_deletion_has_no_answer_may_be_there_or_not():
    declarations = Declarations(declares_asked={ONE}, declares_answered={ONE}, deletes_asked={ONE})

    assert [list(declarations.broken(found)) for found in ({ONE}, set())] == [[], []]


def test_an_answered_deletion_does_not_come_back():
    declarations = Declarations({ONE}, {ONE}, {ONE}, {ONE})

    assert list(declarations.broken(set())) == []
    assert list(declarations.broken({ONE})) == ["queue one of shop was deleted and is back"]


def test_a_queue_that_was_never_declared_is_reported():
    assert list(Declarations().broken({ONE})) == ["queue one of shop was never declared"]
