//! What a publish stream may write: Python's answers, kept until permissions or topology change.

use penstock_wire::is_same;
use rustc_hash::FxHashMap;

/// Exchanges a stream asked for: more than these are forgotten and asked for again.
const PERMITS_MAX: usize = 4096;

/// Why messages to an exchange are rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub code: i32,
    pub reason: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    generation: u64,
    last_admitted: Option<Vec<u8>>,
    known: FxHashMap<Vec<u8>, Option<Denial>>,
}

impl Permits {
    /// Forgets everything when the generation has moved on.
    pub fn refresh(&mut self, generation: u64) {
        if self.generation != generation {
            *self = Permits { generation, ..Permits::default() };
        }
    }

    /// `None` when the exchange has to be asked for.
    pub fn look_up(&mut self, exchange: &[u8]) -> Option<Result<(), &Denial>> {
        if self.last_admitted.as_ref().is_some_and(|last| is_same(last, exchange)) {
            return Some(Ok(()));
        }
        match self.known.get(exchange)? {
            Some(denial) => Some(Err(denial)),
            None => {
                self.last_admitted = Some(exchange.to_vec());
                Some(Ok(()))
            }
        }
    }

    pub fn learn(&mut self, exchange: Vec<u8>, denial: Option<Denial>) {
        if self.known.len() >= PERMITS_MAX {
            self.known.clear();
            self.last_admitted = None;
        }
        self.known.insert(exchange, denial);
    }
}

#[cfg(test)]
mod tests {
    use super::{Denial, Permits};

    #[test]
    fn an_admitted_exchange_is_asked_for_again_after_a_change() {
        let mut permits = Permits::default();
        permits.learn(b"logs".to_vec(), None);
        assert_eq!(permits.look_up(b"logs"), Some(Ok(())));

        permits.refresh(1);

        assert_eq!(permits.look_up(b"logs"), None);
    }

    #[test]
    fn a_denied_exchange_stays_denied_beside_an_admitted_one() {
        let mut permits = Permits::default();
        let denial = Denial { code: 7, reason: "no".to_owned() };
        permits.learn(b"a".to_vec(), None);
        permits.learn(b"b".to_vec(), Some(denial.clone()));

        assert_eq!(permits.look_up(b"a"), Some(Ok(())));
        assert_eq!(permits.look_up(b"b"), Some(Err(&denial)));
    }
}
