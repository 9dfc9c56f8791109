//! Where the calls of a channel go: to its given targets in turn, or to the leader that a broker named. Pure.
//!
//! A broker of a cluster that does not lead a virtual host refuses its messages, and names the leader. That is a hint: it
//! may be old or wrong, and the broker that it names may be out of reach. So hints in a row are bounded, the given targets
//! are gone back to, and a hint that led to no broker is passed over once, to let the other given targets have their turn.
//!
//! A broker relays a call to the leader unless the call [wants a refusal](Following::wants_refusals). A client that cannot reach a leader,
//! as from behind one forwarded port, has its calls relayed until another broker leads.
//!
//! Each event names the target of the call that it is about. One about a target that was left already changes nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Hints that are followed without an answer between them.
const HOPS_MAX: u32 = 4;
const HOST_BYTES_MAX: usize = 255;

/// How long to wait before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    None,
    /// Brokers answer, and one of them leads soon.
    Short,
    #[default]
    Long,
}

/// How a call ended, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End<'a> {
    /// The broker answered, whatever it answered.
    Answered,
    /// The broker relayed the call to the leader with this target, which answered.
    Relayed(&'a str),
    /// There was no connection, so nothing was sent.
    Unsent,
    /// `UNAVAILABLE`, after the call was sent.
    Unavailable,
    /// The broker does not lead; the leader's target, or an empty text.
    NotLeader(&'a str),
}

/// Invariants: `given` is not empty, and `at` is an index of it; `leader` is not one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Following {
    given: Vec<String>,
    /// Whether hints are followed.
    follows: bool,
    /// The given target in use, unless there is a leader.
    at: usize,
    /// A target in use because a broker named it.
    leader: Option<String>,
    /// The last target that could not be reached, until one answers.
    unreached: Option<String>,
    /// Whether calls are to be relayed, because it is a leader's.
    is_relayed: bool,
    /// Hints that were followed since the last answer.
    hops: u32,
    /// Given targets in a row that could not be reached.
    failures: usize,
}

impl Following {
    pub(crate) fn new(given: Vec<String>, follows: bool) -> Self {
        Self { given, follows, at: 0, leader: None, unreached: None, is_relayed: false, hops: 0, failures: 0 }
    }

    pub(crate) fn given(&self) -> &[String] {
        &self.given
    }

    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Whether the broker is to name the leader, and not to relay calls to it.
    pub(crate) fn wants_refusals(&self) -> bool {
        self.follows && !self.is_relayed
    }

    pub(crate) fn current(&self) -> &str {
        self.leader.as_ref().or_else(|| self.given.get(self.at)).map_or("", String::as_str)
    }

    /// Takes note of the end of a call at `target`, and returns how long to wait before the next attempt.
    pub(crate) fn ended(&mut self, target: &str, end: End<'_>) -> Wait {
        if target != self.current() {
            return Wait::None;
        }
        match end {
            End::Relayed(leader) if self.is_relayed && self.unreached.as_deref() == Some(leader) => {
                (self.hops, self.failures) = (0, 0);
                Wait::Long
            }
            End::Answered | End::Relayed(_) => {
                (self.unreached, self.is_relayed, self.hops, self.failures) = (None, false, 0, 0);
                Wait::Long
            }
            End::Unavailable => {
                self.is_relayed = false;
                self.leave();
                Wait::Long
            }
            End::Unsent => self.unreached(target),
            End::NotLeader(leader) => {
                self.failures = 0;
                self.refused(target, leader)
            }
        }
    }

    fn unreached(&mut self, target: &str) -> Wait {
        self.unreached = Some(target.to_owned());
        self.is_relayed = self.leader.is_some() || self.hops > 0;
        if self.leader.is_some() {
            self.leave();
            return Wait::None;
        }
        self.leave();
        self.failures += 1;
        // Each of the given targets is tried before the wait.
        if self.failures < self.given.len() {
            return Wait::None;
        }
        self.failures = 0;
        Wait::Long
    }

    fn refused(&mut self, target: &str, leader: &str) -> Wait {
        self.is_relayed = false;
        if !self.follows || leader.is_empty() || leader == target {
            self.leave();
            return Wait::Short;
        }
        if self.unreached.as_deref() == Some(leader) {
            self.unreached = None;
            self.leave();
            return Wait::Short;
        }
        if self.hops >= HOPS_MAX {
            self.hops = 0;
            self.leave();
            return Wait::Short;
        }
        self.hops += 1;
        match self.given.iter().position(|given| given == leader) {
            Some(at) => (self.at, self.leader) = (at, None),
            None => self.leader = Some(leader.to_owned()),
        }
        Wait::None
    }

    /// Leaves the target in use: a leader for the given target that named it, and that one for the next.
    fn leave(&mut self) {
        if self.leader.take().is_none() {
            self.at = (self.at + 1) % self.given.len().max(1);
        }
    }
}

/// Whether a text from outside is a host and a port to connect to.
pub(crate) fn is_target(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    if host.len() > HOST_BYTES_MAX || !is_port || port.parse::<u16>().is_err() {
        return false;
    }
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok_and(|address| !address.is_unspecified()),
        None => is_host(host),
    }
}

/// A broker that listens everywhere may not know where it is reached: a client would connect to its own machine.
fn is_host(host: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = host.as_bytes();
    let is_everywhere = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_unspecified());
    bytes.iter().all(|byte| is_inner(*byte)) && is_outer(bytes.first()) && is_outer(bytes.last()) && !is_everywhere
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "a:1";
    const B: &str = "b:1";
    const X: &str = "x:1";

    fn following(given: &[&str]) -> Following {
        Following::new(given.iter().map(|each| (*each).to_owned()).collect(), true)
    }

    #[test]
    fn a_named_leader_is_used_at_once_and_kept() {
        let mut following = following(&[A, B]);

        assert_eq!(following.ended(A, End::NotLeader(X)), Wait::None);
        assert_eq!(following.current(), X);
        following.ended(X, End::Answered);
        assert_eq!(following.current(), X);
        assert_eq!(following.ended(X, End::NotLeader(B)), Wait::None);
        assert_eq!(following.current(), B);
    }

    #[test]
    fn a_named_leader_out_of_reach_is_left_for_the_given_targets_and_passed_over_once() {
        let mut following = following(&[A, B]);
        following.ended(A, End::NotLeader(X));

        assert_eq!(following.ended(X, End::Unsent), Wait::None);
        assert_eq!(following.current(), A);
        assert_eq!(following.ended(A, End::NotLeader(X)), Wait::Short);
        assert_eq!(following.current(), B);
        assert_eq!(following.ended(B, End::NotLeader(X)), Wait::None);
        assert_eq!(following.current(), X);
    }

    #[test]
    fn calls_are_relayed_while_the_leader_is_out_of_reach() {
        let mut following = following(&[A]);
        assert!(following.wants_refusals());
        following.ended(A, End::NotLeader(X));
        assert!(following.wants_refusals());

        following.ended(X, End::Unsent);
        assert_eq!((following.current(), following.wants_refusals()), (A, false));
        following.ended(A, End::Relayed(X));
        assert!(!following.wants_refusals());
        // Another one leads, who may be in reach.
        following.ended(A, End::Relayed(B));
        assert!(following.wants_refusals());
    }

    #[test]
    fn calls_are_relayed_as_well_where_the_leader_is_a_given_target() {
        let mut following = following(&[A, B]);
        following.ended(A, End::NotLeader(B));

        following.ended(B, End::Unsent);

        assert_eq!((following.current(), following.wants_refusals()), (A, false));
        following.ended(A, End::Answered);
        assert!(following.wants_refusals());
    }

    #[test]
    fn a_relay_that_breaks_or_is_refused_is_not_asked_for_again() {
        for end in [End::Unavailable, End::NotLeader(X)] {
            let mut following = following(&[A]);
            following.ended(A, End::NotLeader(X));
            following.ended(X, End::Unsent);

            following.ended(A, end);

            assert!(following.wants_refusals(), "{end:?}");
        }
    }

    #[test]
    fn a_target_that_no_broker_named_says_nothing_about_relays() {
        let mut following = following(&[A, B]);

        following.ended(A, End::Unsent);

        assert!(following.wants_refusals());
    }

    #[test]
    fn a_client_that_does_not_follow_has_its_calls_relayed() {
        assert!(!Following::new(vec![A.to_owned()], false).wants_refusals());
    }

    #[test]
    fn every_given_target_is_tried_before_the_wait() {
        let mut following = following(&[A, B]);

        assert_eq!((following.ended(A, End::Unsent), following.current()), (Wait::None, B));
        assert_eq!((following.ended(B, End::Unsent), following.current()), (Wait::Long, A));
    }

    #[test]
    fn without_a_leader_the_next_given_target_is_asked_soon() {
        let mut following = following(&[A, B]);

        assert_eq!((following.ended(A, End::NotLeader("")), following.current()), (Wait::Short, B));
        assert_eq!((following.ended(B, End::NotLeader(B)), following.current()), (Wait::Short, A));
    }

    #[test]
    fn hints_in_a_row_are_bounded() {
        let mut following = following(&[A]);
        let mut hops = 0;
        while following.ended(following.current().to_owned().as_str(), End::NotLeader(&format!("x{hops}:1")))
            == Wait::None
        {
            hops += 1;
        }

        assert_eq!((hops, following.current()), (HOPS_MAX, A));
    }

    #[test]
    fn no_hint_is_followed_that_should_not_be() {
        let mut following = Following::new(vec![A.to_owned()], false);

        assert_eq!((following.ended(A, End::NotLeader(X)), following.current()), (Wait::Short, A));
    }

    #[test]
    fn an_event_of_a_target_that_was_left_changes_nothing() {
        let mut following = following(&[A, B]);
        following.ended(A, End::Unavailable);

        assert_eq!((following.ended(A, End::NotLeader(X)), following.current()), (Wait::None, B));
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let good = ["mq-0.mq:5680", "10.0.0.5:1", "[::1]:65535", "h:5680"];
        let bad = [
            "",
            "h",
            "h:",
            "h:0",
            "h:65536",
            "h:05",
            "h:+5",
            ":5680",
            "u@h:1",
            "h/p:1",
            "h h:1",
            "-h:1",
            "0.0.0.0:1",
            "[::]:1",
            "::1:5",
            "[h]:1",
            "h\n:1",
            "http://h:1",
            "h:1:2",
        ];

        assert_eq!(good.iter().filter(|text| !is_target(text)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(bad.iter().filter(|text| is_target(text)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert!(!is_target(&format!("{}:1", "h".repeat(256))));
    }

    proptest! {
        #[test]
        fn whatever_brokers_say_the_given_targets_are_gone_back_to(ends in proptest::collection::vec(0..7u8, 0..60)) {
            let mut following = following(&[A, B]);
            let mut elsewhere = 0;
            for end in ends {
                let target = following.current().to_owned();
                let end = match end {
                    0 => End::Unsent,
                    1 => End::Unavailable,
                    2 => End::NotLeader(""),
                    3 => End::NotLeader(A),
                    4 => End::NotLeader(X),
                    5 => End::Relayed(X),
                    _ => End::NotLeader("y:1"),
                };
                following.ended(&target, end);
                let is_given = [A, B].contains(&following.current());
                elsewhere = if is_given || end == End::Relayed(X) { 0 } else { elsewhere + 1 };
                prop_assert!(elsewhere <= HOPS_MAX);
                prop_assert!(!following.current().is_empty());
            }
        }
    }
}
