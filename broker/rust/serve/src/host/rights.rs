//! Whether an open stream may go on: asked again whenever users, permissions or tokens change.
//!
//! The asking has a task of its own, so that a stream goes on while it is decided, and a client that does not read is asked
//! about too. At most so many ask at a time, because one change may concern all streams there are. Every idle connection has
//! such a task: it holds little, and what asking takes is allocated only while it lasts.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_engine::{EngineError, ProducerSession, Shard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::host::calls::{Call, Calls};
use crate::host::refusal::{Kind, Refusal};
use crate::host::stalls::when_free;

/// How long a stream goes on while nobody can tell whether it may, because a server does not answer.
const UNDECIDED_MAX: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A stream's right to go on. Dropping it ends the asking.
pub(crate) struct Rights {
    end: Arc<End>,
    asking: JoinHandle<()>,
}

/// Why a stream has to end, and the waker of the one that waits for that.
#[derive(Default)]
struct End {
    refused: OnceLock<Refusal>,
    waker: Notify,
}

impl Drop for Rights {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

/// What admits a stream, to be asked again. It is made before the first asking, so that no change after that is missed.
pub(crate) struct Question {
    calls: Arc<Calls>,
    call: Call,
    /// The last change that was asked about, or that came before the first asking.
    since: u64,
    changes: watch::Receiver<u64>,
    /// The same of the stream's connection.
    since_own: u64,
}

impl Question {
    pub fn of(calls: &Arc<Calls>, call: &Call) -> Question {
        let (changes, since_own) = (calls.changes().subscribe(), call.caller.state.generation());
        let since = calls.changes().last();
        Question { calls: Arc::clone(calls), call: call.again(), since, changes, since_own }
    }

    /// Open a producer's name for the admitted user. After a change meanwhile it asks again first, so that a user opens no
    /// name after its deletion.
    pub async fn producer_session(
        &mut self,
        shard: &Shard,
        name: &str,
        (user, vhost): (&str, &str),
    ) -> Result<ProducerSession, Refusal> {
        loop {
            let is_current = || !self.is_outdated(user, vhost);
            let opened = when_free(shard, || shard.open_producer_while(name, user, is_current)).await;
            match opened {
                Err(EngineError::NotAdmitted) => self.renew(user, vhost).await?,
                opened => return Ok(opened?),
            }
        }
    }

    /// Whether anything changed that the answer depends on. Nothing changes any more when the broker stops.
    fn is_outdated(&self, user: &str, vhost: &str) -> bool {
        self.calls.changes().rights_of(user, vhost) > self.since
            || self.call.caller.state.generation() != self.since_own
    }

    async fn renew(&mut self, user: &str, vhost: &str) -> Result<(), Refusal> {
        self.since = self.since.max(self.calls.changes().rights_of(user, vhost));
        self.since_own = self.call.caller.state.generation();
        self.calls.ask_again(self.call.again()).await.map(|_| ())
    }

    /// Watch over the stream that was admitted, for this user in this virtual host. `at_end` is called when its right is
    /// gone, whether or not anybody looks at the stream.
    pub fn watch(self, user: &str, vhost: &str, at_end: impl FnOnce() + Send + 'static) -> Rights {
        let end = Arc::<End>::default();
        let (told, user, vhost) = (Arc::clone(&end), user.to_owned(), vhost.to_owned());
        let mut question = self;
        let asking = tokio::spawn(async move {
            if let Some(refused) = question.until_refused(&user, &vhost).await {
                told.tell(refused);
                at_end();
            }
        });
        Rights { end, asking }
    }

    /// Ask after each change that concerns the stream. Return why it has to end, or nothing when there are no more changes.
    async fn until_refused(&mut self, user: &str, vhost: &str) -> Option<Refusal> {
        while self.changed(user, vhost).await {
            if let Some(refused) = Box::pin(self.ask()).await {
                return Some(refused);
            }
        }
        None
    }

    /// Wait for a change that concerns the stream; say whether there can be another one.
    async fn changed(&mut self, user: &str, vhost: &str) -> bool {
        loop {
            let own = tokio::select! {
                changed = self.changes.changed() => match changed {
                    Ok(()) => None,
                    Err(_) => return false,
                },
                own = self.call.caller.state.changed(self.since_own) => Some(own),
            };
            let last = self.calls.changes().rights_of(user, vhost);
            if own.is_some() || last > self.since {
                self.since = self.since.max(last);
                self.since_own = own.unwrap_or(self.since_own);
                return true;
            }
        }
    }

    /// Why the stream has to end, or nothing.
    async fn ask(&self) -> Option<Refusal> {
        let asked_at = Instant::now();
        loop {
            let Err(refused) = self.calls.ask_again(self.call.again()).await else { return None };
            match refused.kind {
                Kind::Unauthenticated | Kind::AccessRefused | Kind::LedElsewhere => return Some(refused),
                Kind::Unavailable | Kind::LimitReached | Kind::Bug => {}
                // What the stream is about is gone, which it hears of by itself.
                _ => return None,
            }
            if asked_at.elapsed() >= UNDECIDED_MAX {
                return Some(refused);
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

impl Rights {
    /// Why the stream has to end, once it has to.
    pub fn refused(&self) -> Option<Refusal> {
        self.end.refused.get().cloned()
    }

    /// Waits until the stream has to end.
    pub async fn until_refused(&mut self) -> Refusal {
        // When nobody asks any more, the broker is going down, which the stream hears of by itself.
        loop {
            if let Some(refused) = self.refused() {
                return refused;
            }
            self.end.waker.notified().await;
        }
    }
}

/// Waits until a stream has to end, for ever without a right that is watched.
pub(crate) async fn until_refused(rights: &mut Option<Rights>) -> Refusal {
    match rights {
        Some(rights) => rights.until_refused().await,
        None => std::future::pending().await,
    }
}

impl End {
    fn tell(&self, refused: Refusal) {
        // There is one task that tells, once.
        let _ = self.refused.set(refused);
        self.waker.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use penstock_engine::{Engine, EngineOptions};

    use super::Question;
    use crate::host::caller::Caller;
    use crate::host::calls::{Answer, Call, CallRequest, Calls};
    use crate::host::refusal::{Kind, Refusal};

    /// The next call that waits.
    async fn next(calls: &Calls) -> Call {
        let taken = async {
            loop {
                if let Some(call) = calls.take().pop() {
                    return call;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), taken).await.unwrap()
    }

    fn refuse(call: Call, kind: Kind) {
        call.reply.unwrap().send(Err(Refusal::new(kind, "no")));
    }

    /// A name that was opened on an answer from before the user's deletion belonged to the next user of that name.
    #[tokio::test]
    async fn a_producer_is_opened_on_an_answer_that_is_newer_than_every_change() {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::new(EngineOptions {
            segment_bytes_min: 64 << 10,
            segment_bytes_max: 256 << 10,
            segment_idle: Duration::from_secs(60),
            disk_free_bytes_min: 0,
            compaction_bytes_per_second: 0,
            producer_memory: Duration::ZERO,
            producers_of_user_max: 4096,
        })
        .unwrap();
        let shard = engine.open_shard("/", directory.path(), false).unwrap();
        let calls = Arc::new(Calls::new(8).unwrap());
        let open = |name: &'static str| {
            let (shard, mut question) =
                (Arc::clone(&shard), Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default())));
            async move { question.producer_session(&shard, name, ("anna", "/")).await.map(drop) }
        };

        let unchanged = open("first");
        calls.recheck(Some("ben"), None);
        unchanged.await.unwrap();
        let changed = open("second");
        calls.recheck(Some("anna"), None);
        let opening = tokio::spawn(changed);
        let first = next(&calls).await;
        calls.recheck(Some("anna"), None);
        first.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        let again = next(&calls).await;
        assert_eq!(shard.producer_owner("second").unwrap(), None);
        again.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        opening.await.unwrap().unwrap();
        assert_eq!(shard.producer_owner("second").unwrap().as_deref(), Some("anna"));
        let deleted = open("third");
        calls.recheck(None, None);
        let opening = tokio::spawn(deleted);
        refuse(next(&calls).await, Kind::Unauthenticated);

        assert_eq!(opening.await.unwrap().unwrap_err().kind, Kind::Unauthenticated);
        assert_eq!(shard.producer_owner("third").unwrap(), None);
        engine.close().unwrap();
    }

    #[tokio::test]
    async fn a_right_that_is_taken_away_ends_the_stream_also_when_nobody_looks() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let question = Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default()));
        let mut rights = question.watch("anna", "/", move || seen.store(true, Ordering::Release));

        calls.recheck(None, None);
        let first = next(&calls).await;
        assert!(first.again);
        first.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        assert!(rights.refused().is_none());
        calls.recheck(None, None);
        refuse(next(&calls).await, Kind::AccessRefused);

        while !ended.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(rights.until_refused().await.kind, Kind::AccessRefused);
    }

    #[tokio::test]
    async fn a_stream_goes_on_while_nobody_can_tell_and_is_asked_about_again() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let mut rights =
            Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default())).watch("anna", "/", || ());

        calls.recheck(None, None);
        refuse(next(&calls).await, Kind::Unavailable);
        assert!(rights.refused().is_none());
        refuse(next(&calls).await, Kind::Unauthenticated);

        assert_eq!(rights.until_refused().await.kind, Kind::Unauthenticated);
    }

    #[tokio::test]
    async fn a_change_of_one_connection_concerns_its_streams_alone() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let mut asked = [0, 0];
        let callers: Vec<_> = (0..2).map(|connection| Caller { connection, ..Caller::default() }).collect();
        callers.iter().for_each(|caller| calls.connected(caller.connection, &caller.state));
        let watch = |caller| Question::of(&calls, &Call::new(CallRequest::Enter, caller)).watch("anna", "/", || ());
        let _rights: Vec<_> = callers.iter().map(watch).collect();
        let generations: Vec<_> = callers.iter().map(|caller| calls.generation(caller, "anna", "/")).collect();

        calls.recheck_connection(1);
        let call = next(&calls).await;
        asked[usize::try_from(call.caller.connection).unwrap()] += 1;
        call.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        let after: Vec<_> = callers.iter().map(|caller| calls.generation(caller, "anna", "/")).collect();
        assert_eq!(after, [generations[0], generations[1] + 1]);
        calls.recheck(None, None);
        for _ in 0..2 {
            let call = next(&calls).await;
            asked[usize::try_from(call.caller.connection).unwrap()] += 1;
            call.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        }

        assert_eq!(asked, [1, 2]);
        calls.disconnected(1);
        calls.recheck_connection(1);
        assert_eq!(
            calls.generation(&callers[1], "anna", "/"),
            after[1] + 1,
            "a connection that ended is not rechecked"
        );
    }

    #[tokio::test]
    async fn a_change_between_admission_and_watching_is_asked_about() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let question = Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default()));
        calls.recheck(None, None);

        let mut rights = question.watch("anna", "/", || ());
        refuse(next(&calls).await, Kind::AccessRefused);

        assert_eq!(rights.until_refused().await.kind, Kind::AccessRefused);
    }

    #[tokio::test]
    async fn a_change_of_one_user_or_virtual_host_makes_no_stream_of_another_ask() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let watch = |user: &str, vhost: &str| {
            let caller = Caller { authorization: format!("{user} {vhost}"), ..Caller::default() };
            Question::of(&calls, &Call::new(CallRequest::Enter, &caller)).watch(user, vhost, || ())
        };
        let _rights = [watch("anna", "/"), watch("anna", "blue"), watch("ben", "/")];

        let mut asked = Vec::new();
        for (user, vhost, count) in [("ben", None, 1), ("anna", Some("blue"), 1), ("cleo", None, 0), ("anna", None, 2)]
        {
            calls.recheck(Some(user), vhost);
            let mut names = Vec::new();
            for _ in 0..count {
                let call = next(&calls).await;
                names.push(call.caller.authorization.clone());
                call.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(calls.take().is_empty());
            names.sort();
            asked.push(names);
        }

        assert_eq!(asked, [vec!["ben /"], vec!["anna blue"], vec![], vec!["anna /", "anna blue"]]);
    }
}
