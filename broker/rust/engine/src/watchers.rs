//! Signals that are rung once, at the next message of a stream.
//!
//! Invariants: a signal that nobody holds any more costs no more than the others, however many come and go; nobody has to
//! leave. Without watchers a message costs one look at an empty list.

use std::sync::{Arc, Weak};

use crate::signal::{Signal, Wakes};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Weak<Signal>>);

impl Watchers {
    pub fn add(&mut self, signal: &Arc<Signal>) {
        // Once the list is full: each look at it is paid by as many additions.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|watcher| watcher.strong_count() > 0);
        }
        self.0.push(Arc::downgrade(signal));
    }

    pub fn wake(&mut self, wakes: &mut Wakes) {
        for watcher in self.0.drain(..) {
            watcher.upgrade().into_iter().for_each(|signal| wakes.add(&signal));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::{Signal, Wakes, Watchers};

    fn is_rung(signal: &Signal) -> bool {
        let heard = std::pin::pin!(signal.heard());
        heard.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_watcher_is_rung_once() {
        let (mut watchers, one, other) = (Watchers::default(), Arc::<Signal>::default(), Arc::<Signal>::default());
        watchers.add(&one);
        watchers.add(&other);
        assert!(!is_rung(&one));

        watchers.wake(&mut Wakes::default());
        assert!(is_rung(&one) && is_rung(&other));

        watchers.wake(&mut Wakes::default());
        assert!(!is_rung(&one));
    }

    #[test]
    fn watchers_that_went_are_forgotten() {
        let mut watchers = Watchers::default();
        let stays: Vec<_> = (0..10).map(|_| Arc::<Signal>::default()).collect();
        stays.iter().for_each(|signal| watchers.add(signal));

        for _ in 0..100_000 {
            watchers.add(&Arc::default());
        }

        assert!(watchers.0.capacity() < 64, "{}", watchers.0.capacity());
        watchers.wake(&mut Wakes::default());
        assert!(stays.iter().all(|signal| is_rung(signal)));
    }
}
