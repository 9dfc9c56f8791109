//! Regular expressions that users supply, matched in time linear in the length of the text.
//!
//! Invariants: no pattern makes a match backtrack; the size of a compiled pattern and of its caches is bounded; syntax
//! with another meaning here than in PCRE and Python is refused. Limits: there are no look-around and no
//! back-references. The caller bounds the length of the source.

mod syntax;

use regex_automata::meta::{Config, Regex};
use regex_automata::util::syntax::Config as Syntax;
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::{Hir, HirKind, Look};
use thiserror::Error;

/// The most characters and classes of a pattern once its counted repetitions are written out. A match costs at most the
/// text's length times this.
const POSITIONS_MAX: u32 = 1_024;
/// The memory of a compiled program. A class of Unicode such as `\w` takes some 50 KiB.
const PROGRAM_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The memory of the states that matching builds and keeps, for each direction.
const CACHE_BYTES_MAX: usize = 64 * 1024;

/// Why a pattern is refused and how to write it instead. `rule` continues a sentence that begins with the pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{rule}; {way_out}")]
pub struct Refusal {
    pub rule: String,
    pub way_out: String,
}

impl Refusal {
    pub(crate) fn new(rule: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { rule: rule.into(), way_out: way_out.into() }
    }
}

/// Where in a text a pattern has to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The whole text.
    Whole,
    /// Any part of it.
    Part,
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    program: Regex,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The source is not a regular expression, has unsupported syntax, or compiles to more than the limit.
    pub fn new(source: &str, extent: Extent) -> Result<Self, Refusal> {
        let parsed = syntax::parse(source)?;
        if positions(&parsed) > POSITIONS_MAX {
            return Err(Refusal::new(
                format!("has more than {POSITIONS_MAX} characters once its repetitions are written out"),
                "use smaller counts in `{n,m}`, or `*` and `+`",
            ));
        }
        // Around the parsed expression, not around the text: a comment or a flag in the source cannot reach it.
        let expression = match extent {
            Extent::Part => parsed,
            Extent::Whole => Hir::concat(vec![Hir::look(Look::Start), parsed, Hir::look(Look::End)]),
        };
        let config = Config::new()
            .match_kind(MatchKind::LeftmostFirst)
            .which_captures(regex_automata::nfa::thompson::WhichCaptures::None)
            .nfa_size_limit(Some(PROGRAM_BYTES_MAX))
            .hybrid_cache_capacity(CACHE_BYTES_MAX)
            .backtrack(false);
        let program =
            Regex::builder().configure(config).syntax(Syntax::new()).build_from_hir(&expression).map_err(|_| {
                Refusal::new(
                    "takes too much memory once its repetitions and classes are written out",
                    "use smaller counts in `{n,m}`, or `[A-Za-z0-9_]` for `\\w`",
                )
            })?;
        Ok(Self { program })
    }

    /// Whether the pattern matches.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.program.is_match(Input::new(text))
    }

    /// The size of the compiled program in bytes, without its caches.
    #[must_use]
    pub fn size(&self) -> usize {
        self.program.memory_usage()
    }
}

/// Counts the characters and classes of an expression, each as often as its repetitions require.
fn positions(expression: &Hir) -> u32 {
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => {
            let begins_character = |byte: &&u8| **byte & 0xC0 != 0x80;
            u32::try_from(literal.0.iter().filter(begins_character).count()).unwrap_or(u32::MAX)
        }
        HirKind::Repetition(repetition) => {
            let count = repetition.max.unwrap_or(repetition.min).max(1);
            positions(&repetition.sub).saturating_mul(count)
        }
        HirKind::Capture(capture) => positions(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(positions).fold(0, u32::saturating_add)
        }
    }
}
