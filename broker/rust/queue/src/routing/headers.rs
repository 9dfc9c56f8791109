//! The routes of a headers exchange: arguments that are matched against the headers of a message.
//!
//! Arguments are read in place, as AMQP field tables. `x-match` says whether all have to match or any one, and whether
//! arguments whose names begin with `x-` count. Integers are compared by value whatever their width; other types differ
//! from each other. The cost of one route depends on its own arguments, not on the message's headers.

use penstock_wire::amqp::table::{self, TableRef, ValueRef};

use super::error::RoutingError;
use super::shared_map::SharedMap;
use super::targets::{KeyedTargets, Target, Targets};

const MATCH: &[u8] = b"x-match";
const EXTENSION: &[u8] = b"x-";

/// Routes by their arguments' bytes: routes with equal arguments are matched once.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderRoutes {
    groups: SharedMap<Box<[u8]>, Group>,
}

#[derive(Clone, Debug)]
struct Group {
    rule: Rule,
    routes: KeyedTargets,
}

/// Value of `x-match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    any: bool,
    with_extensions: bool,
}

impl HeaderRoutes {
    pub(super) fn add(&mut self, key: &[u8], matching: &[u8], target: Target) -> Result<(), RoutingError> {
        if let Some(group) = self.groups.get_mut(matching) {
            group.routes.add(key, target);
            return Ok(());
        }
        table::check(matching)?;
        let mut group = Group { rule: Rule::of(matching)?, routes: KeyedTargets::default() };
        group.routes.add(key, target);
        self.groups.insert(matching.into(), group);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &[u8], matching: &[u8], target: Target) {
        let Some(group) = self.groups.get_mut(matching) else { return };
        group.routes.remove(key, target);
        if group.routes.targets().is_empty() {
            self.groups.remove(matching);
        }
    }

    pub(super) fn find<'a>(&'a self, headers: &mut HeaderIndex<'_>, mut matched: impl FnMut(&'a Targets)) {
        for (matching, group) in self.groups.iter() {
            if group.rule.is_met(matching, headers) {
                matched(group.routes.targets());
            }
        }
    }
}

impl Rule {
    /// Without an `x-match` that is text, all have to match.
    fn of(matching: &[u8]) -> Result<Rule, RoutingError> {
        let mut said: &[u8] = b"all";
        for (name, value) in table::entries(matching).map_while(Result::ok) {
            if let (MATCH, ValueRef::Text(text)) = (name, value) {
                said = text;
            }
        }
        match said {
            b"all" => Ok(Rule { any: false, with_extensions: false }),
            b"any" => Ok(Rule { any: true, with_extensions: false }),
            b"all-with-x" => Ok(Rule { any: false, with_extensions: true }),
            b"any-with-x" => Ok(Rule { any: true, with_extensions: true }),
            _ => Err(RoutingError::UnknownMatch(String::from_utf8_lossy(said).into_owned())),
        }
    }

    fn is_met(self, matching: &[u8], headers: &mut HeaderIndex<'_>) -> bool {
        let mut arguments = table::entries(matching).map_while(Result::ok).filter(|&(name, _)| self.counts(name));
        let mut is_met = |(name, wanted)| headers.get(name).is_some_and(|found| meets(wanted, found));
        if self.any { arguments.any(&mut is_met) } else { arguments.all(&mut is_met) }
    }

    fn counts(self, name: &[u8]) -> bool {
        name != MATCH && (self.with_extensions || !name.starts_with(EXTENSION))
    }
}

/// The headers of one message, sorted by name when the first exchange needs them. Of headers with one name the last
/// counts.
#[derive(Debug)]
pub(super) struct HeaderIndex<'a> {
    table: &'a [u8],
    sorted: Option<Vec<(&'a [u8], ValueRef<'a>)>>,
}

impl<'a> HeaderIndex<'a> {
    pub(super) fn new(table: &'a [u8]) -> Self {
        HeaderIndex { table, sorted: None }
    }

    pub(super) fn get(&mut self, name: &[u8]) -> Option<ValueRef<'a>> {
        let sorted = self.sorted.get_or_insert_with(|| {
            let mut entries: Vec<_> = table::entries(self.table).map_while(Result::ok).collect();
            entries.sort_by_key(|&(name, _)| name);
            entries
        });
        let end = sorted.partition_point(|&(other, _)| other <= name);
        let &(found, value) = sorted.get(end.checked_sub(1)?)?;
        (found == name).then_some(value)
    }
}

/// Whether a header matches an argument; an argument without a value requires only that the header exists.
fn meets(wanted: ValueRef<'_>, found: ValueRef<'_>) -> bool {
    match (wanted, found) {
        (ValueRef::Void, _) => true,
        _ => match (float(wanted), float(found)) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => is_same(wanted, found),
        },
    }
}

/// The depth limit of tables bounds the recursion.
fn is_same(one: ValueRef<'_>, other: ValueRef<'_>) -> bool {
    match (one, other) {
        (ValueRef::Array(one), ValueRef::Array(other)) => {
            let (mut ones, mut others) = (one.values(), other.values());
            loop {
                match (ones.next(), others.next()) {
                    (None, None) => return true,
                    (Some(Ok(one)), Some(Ok(other))) if is_same(one, other) => (),
                    _ => return false,
                }
            }
        }
        (ValueRef::Table(one), ValueRef::Table(other)) => is_same_table(one, other),
        _ => match ((integer(one), integer(other)), (float(one), float(other))) {
            ((Some(one), Some(other)), _) => one == other,
            (_, (Some(one), Some(other))) => one.to_bits() == other.to_bits(),
            ((None, None), (None, None)) => one == other,
            _ => false,
        },
    }
}

/// Reads no more of `other` than `one` has entries; the order of entries does not matter.
fn is_same_table(one: TableRef<'_>, other: TableRef<'_>) -> bool {
    let ones: Result<Vec<_>, _> = one.entries().collect();
    let Ok(mut ones) = ones else { return false };
    let others: Result<Vec<_>, _> = other.entries().take(ones.len() + 1).collect();
    let Ok(mut others) = others else { return false };
    ones.sort_by_key(|&(name, _)| name);
    others.sort_by_key(|&(name, _)| name);
    ones.len() == others.len()
        && ones.iter().zip(&others).all(|(one, other)| one.0 == other.0 && is_same(one.1, other.1))
}

fn integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::I8(number) => Some(number.into()),
        ValueRef::U8(number) => Some(number.into()),
        ValueRef::I16(number) => Some(number.into()),
        ValueRef::U16(number) => Some(number.into()),
        ValueRef::I32(number) => Some(number.into()),
        ValueRef::U32(number) => Some(number.into()),
        ValueRef::I64(number) => Some(number),
        _ => None,
    }
}

fn float(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::F32(number) => Some(number.into()),
        ValueRef::F64(number) => Some(number),
        _ => None,
    }
}
