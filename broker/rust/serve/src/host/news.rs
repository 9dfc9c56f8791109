//! Lines of the log that any client can cause: at most one of each kind in ten seconds, of all listeners. Counters have all of them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(10);

/// Each kind has a time of its own, so that a flood of one does not hide another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Refused,
    Handshake,
    /// A header of the PROXY protocol from an address that is not trusted.
    Header,
}

/// When each kind was told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<[Option<Instant>; 3]>>);

impl Told {
    /// Whether a line may be written now; then it counts as written.
    pub fn may_tell(&self, news: News, now: Instant) -> bool {
        let Ok(mut told) = self.0.lock() else { return false };
        let Some(last) = told.get_mut(news as usize) else { return false };
        let may = last.is_none_or(|last| now.duration_since(last) >= TELL_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{News, TELL_EVERY, Told};

    #[test]
    fn one_line_of_each_kind_is_written_in_ten_seconds() {
        let (told, now) = (Told::default(), Instant::now());
        assert!(told.may_tell(News::Refused, now));
        assert!(!told.clone().may_tell(News::Refused, now));
        assert!(told.may_tell(News::Header, now), "another kind");
        assert!(told.may_tell(News::Handshake, now), "another kind");

        assert!(told.may_tell(News::Refused, now + TELL_EVERY));
    }
}
