//! Parses a pattern. Refuses by name unsupported syntax, and syntax with another meaning in other engines.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{self, AssertionKind, Ast, ClassSetBinaryOp, ClassSetItem, ErrorKind, Flags, Span};
use regex_syntax::hir::{Hir, translate::Translator};

use crate::Refusal;

/// The deepest nesting of groups.
const NESTING_MAX: u32 = 100;

pub(crate) fn parse(source: &str) -> Result<Hir, Refusal> {
    let tree = ParserBuilder::new()
        .nest_limit(NESTING_MAX)
        .build()
        .parse(source)
        .map_err(|error| of_parser(source, error.kind(), error.span()))?;
    ast::visit(&tree, Differences { source })?;
    Translator::new().translate(source, &tree).map_err(|error| invalid(&error.kind().to_string(), source, error.span()))
}

fn of_parser(source: &str, kind: &ErrorKind, span: &Span) -> Refusal {
    let found = source.get(span.start.offset..span.end.offset).unwrap_or_default();
    match kind {
        ErrorKind::UnsupportedLookAround => {
            unsupported("the look-around", found, "write a pattern of the names that are meant")
        }
        ErrorKind::UnsupportedBackreference => back_reference(found),
        ErrorKind::FlagUnrecognized => of_group(source, kind, span),
        ErrorKind::EscapeUnrecognized => match found {
            "\\k" | "\\g" => back_reference(found),
            "\\Z" => unsupported("the escape", found, "use `$` or `\\z`"),
            _ => unsupported("the escape", found, "write the character without `\\`, or use `[...]`"),
        },
        ErrorKind::RepetitionMissing
        | ErrorKind::RepetitionCountUnclosed
        | ErrorKind::RepetitionCountDecimalEmpty
        | ErrorKind::RepetitionCountInvalid
            if source[span.start.offset..].starts_with('{') || found.contains('{') =>
        {
            Refusal {
                way_out: "correct the pattern, or write `\\{` for a brace".into(),
                ..invalid(&kind.to_string(), source, span)
            }
        }
        _ => invalid(&kind.to_string(), source, span),
    }
}

/// The refusal of a group that begins with `(?` and is not supported. The span is that of the next character.
fn of_group(source: &str, kind: &ErrorKind, span: &Span) -> Refusal {
    let begin = source[..span.start.offset].rfind("(?").unwrap_or(span.start.offset);
    let group = source.get(begin..span.end.offset).unwrap_or_default();
    let rest = &source[span.start.offset..];
    if group.ends_with("(?P") && rest.starts_with("P=") {
        return back_reference("(?P=");
    }
    match group {
        "(?>" => unsupported("the atomic group", group, "use `(?:`"),
        "(?(" => unsupported("the conditional", group, "write both cases with `|`"),
        "(?#" => unsupported("the comment", group, "leave it out"),
        "(?|" => unsupported("the branch reset", group, "use `(?:`"),
        "(?&" => recursion(group),
        "(?P" if rest.starts_with("P>") => recursion("(?P>"),
        _ if rest.starts_with(|first: char| first.is_ascii_digit() || first == '+') => recursion(group),
        _ => invalid(&kind.to_string(), source, span),
    }
}

fn back_reference(found: &str) -> Refusal {
    unsupported("the back-reference", found, "write out the texts that may stand there, separated by `|`")
}

fn recursion(found: &str) -> Refusal {
    unsupported("the recursion", found, "write out what may be nested")
}

fn unsupported(construct: &str, found: &str, way_out: &str) -> Refusal {
    Refusal::new(format!("has {construct} `{found}` that is not supported"), way_out)
}

fn ambiguous(construct: &str, found: &str, way_out: &str) -> Refusal {
    Refusal::new(format!("has {construct} `{found}` that regular expression engines read differently"), way_out)
}

fn invalid(problem: &str, source: &str, span: &Span) -> Refusal {
    let place = source[..span.start.offset].chars().count() + 1;
    Refusal::new(format!("is not a regular expression: {problem} at character {place}"), "correct the pattern")
}

/// Finds accepted syntax with another meaning than in PCRE and Python.
struct Differences<'a> {
    source: &'a str,
}

impl Differences<'_> {
    fn text(&self, span: &Span) -> &str {
        self.source.get(span.start.offset..span.end.offset).unwrap_or_default()
    }

    fn check_flags(&self, flags: &Flags) -> Result<(), Refusal> {
        match flags.flag_state(ast::Flag::CRLF) {
            Some(_) => Err(recursion(&format!("(?{}", self.text(&flags.span)))),
            None => Ok(()),
        }
    }
}

impl ast::Visitor for Differences<'_> {
    type Output = ();
    type Err = Refusal;

    fn finish(self) -> Result<(), Refusal> {
        Ok(())
    }

    fn visit_pre(&mut self, tree: &Ast) -> Result<(), Refusal> {
        match tree {
            Ast::Repetition(outer) => match outer.ast.as_ref() {
                Ast::Repetition(inner) => {
                    let both = format!("{}{}", self.text(&inner.op.span), self.text(&outer.op.span));
                    Err(unsupported("the possessive or double repetition", &both, "leave out its second part"))
                }
                _ => Ok(()),
            },
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::WordBoundaryStartAngle | AssertionKind::WordBoundaryEndAngle => {
                    let found = self.text(&assertion.span);
                    Err(ambiguous(
                        "the escape",
                        found,
                        "use `\\b` for the edge of a word, or the character without `\\`",
                    ))
                }
                _ => Ok(()),
            },
            Ast::Flags(set) => self.check_flags(&set.flags),
            Ast::Group(group) => group.flags().map_or(Ok(()), |flags| self.check_flags(flags)),
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Refusal> {
        match item {
            ClassSetItem::Bracketed(inner) => {
                let found = self.text(&inner.span);
                Err(ambiguous("the class within a class", found, "write `\\[` for a bracket"))
            }
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, operation: &ClassSetBinaryOp) -> Result<(), Refusal> {
        let found = self.text(&operation.span);
        Err(ambiguous(
            "the set operation",
            found,
            "write a class of the characters themselves, `&`, `-` and `~` only once",
        ))
    }
}
