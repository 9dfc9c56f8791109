//! Whether an open stream may go on: asked again whenever users, permissions or tokens change.
//!
//! The asking has a task of its own, so that a stream goes on while it is decided, and a client that does not read is asked
//! about too. At most so many ask at a time, because one change may concern all streams there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_engine::{EngineError, ProducerSession, Shard};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::calls::{Call, Calls};
use crate::stalls::when_free;
use crate::status;

/// How long a stream goes on while nobody can tell whether it may, because a server does not answer.
const UNDECIDED_MAX: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A stream's right to go on. Dropping it ends the asking.
pub(crate) struct Rights {
    refused: watch::Receiver<Option<Status>>,
    asking: JoinHandle<()>,
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
    changes: watch::Receiver<u64>,
    /// Those of the stream's connection.
    own_changes: watch::Receiver<u64>,
}

impl Question {
    pub fn of(calls: &Arc<Calls>, call: &Call) -> Question {
        let (changes, own_changes) = (calls.changes(), call.caller.state.changes());
        Question { calls: Arc::clone(calls), call: call.again(), changes, own_changes }
    }

    /// Open a producer's name for the admitted user. After a change meanwhile it asks again first, so that a user opens no
    /// name after its deletion.
    pub async fn open_producer(&mut self, shard: &Shard, name: &str, user: &str) -> Result<ProducerSession, Status> {
        loop {
            let opened = when_free(shard, || shard.open_producer_while(name, user, || !self.is_outdated())).await;
            match opened {
                Err(EngineError::NotAdmitted) => self.renew().await?,
                opened => return opened.map_err(|error| status::of_engine(&error)),
            }
        }
    }

    /// Whether anything changed that the answer depends on. Nothing changes any more when the broker stops.
    fn is_outdated(&self) -> bool {
        self.changes.has_changed().unwrap_or(false) || self.own_changes.has_changed().unwrap_or(false)
    }

    async fn renew(&mut self) -> Result<(), Status> {
        self.changes.mark_unchanged();
        self.own_changes.mark_unchanged();
        self.calls.ask_again(self.call.again()).await.map(|_| ())
    }

    /// Watches over the stream that was admitted. `at_end` is called when its right is gone, whether or not anybody looks at
    /// the stream.
    pub fn watch(self, at_end: impl FnOnce() + Send + 'static) -> Rights {
        let (told, refused) = watch::channel(None);
        let asking = tokio::spawn(self.ask_after_changes(move |status| {
            told.send_replace(Some(status));
            at_end();
        }));
        Rights { refused, asking }
    }

    async fn ask_after_changes(mut self, end: impl FnOnce(Status)) {
        while self.changed().await {
            if let Some(refused) = self.ask().await {
                return end(refused);
            }
        }
    }

    /// Wait for a change; say whether there can be another one.
    async fn changed(&mut self) -> bool {
        let changed = tokio::select! {
            changed = self.changes.changed() => changed,
            changed = self.own_changes.changed() => changed,
        };
        changed.is_ok()
    }

    /// Why the stream has to end, or nothing.
    async fn ask(&self) -> Option<Status> {
        let asked_at = Instant::now();
        loop {
            let Err(refused) = self.calls.ask_again(self.call.again()).await else { return None };
            match refused.code() {
                Code::Unauthenticated | Code::PermissionDenied => return Some(refused),
                Code::Unavailable | Code::ResourceExhausted | Code::Internal => {}
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
    pub fn refused(&self) -> Option<Status> {
        self.refused.borrow().clone()
    }

    /// Waits until the stream has to end.
    pub async fn until_refused(&mut self) -> Status {
        match self.refused.wait_for(Option::is_some).await.map(|refused| refused.clone()) {
            Ok(Some(refused)) => refused,
            // Nobody asks any more: the broker is going down, which the stream hears of by itself.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tonic::Code;

    use super::Question;
    use crate::caller::Caller;
    use crate::calls::{Answer, Call, CallRequest, Calls, Refusal};

    /// The next call that waits.
    async fn next(calls: &Calls) -> Call {
        loop {
            if let Some(call) = calls.take().pop() {
                return call;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn refuse(call: Call, code: Code) {
        let refusal = Refusal { code: code as i32, message: "no".to_owned(), details: Vec::new() };
        call.reply.unwrap().send(Err(refusal));
    }

    #[tokio::test]
    async fn a_right_that_is_taken_away_ends_the_stream_also_when_nobody_looks() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let question = Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default()));
        let mut rights = question.watch(move || seen.store(true, Ordering::Release));

        calls.recheck();
        let first = next(&calls).await;
        assert!(first.again);
        first.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        assert!(rights.refused().is_none());
        calls.recheck();
        refuse(next(&calls).await, Code::PermissionDenied);

        while !ended.load(Ordering::Acquire) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(rights.until_refused().await.code(), Code::PermissionDenied);
    }

    #[tokio::test]
    async fn a_stream_goes_on_while_nobody_can_tell_and_is_asked_about_again() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let mut rights = Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default())).watch(|| ());

        calls.recheck();
        refuse(next(&calls).await, Code::Unavailable);
        assert!(rights.refused().is_none());
        refuse(next(&calls).await, Code::Unauthenticated);

        assert_eq!(rights.until_refused().await.code(), Code::Unauthenticated);
    }

    #[tokio::test]
    async fn a_change_of_one_connection_concerns_its_streams_alone() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let mut asked = [0, 0];
        let callers: Vec<_> = (0..2).map(|connection| Caller { connection, ..Caller::default() }).collect();
        callers.iter().for_each(|caller| calls.connected(caller.connection, &caller.state));
        let watch = |caller| Question::of(&calls, &Call::new(CallRequest::Enter, caller)).watch(|| ());
        let _rights: Vec<_> = callers.iter().map(watch).collect();
        let generations: Vec<_> = callers.iter().map(|caller| calls.generation(caller)).collect();

        calls.recheck_connection(1);
        let call = next(&calls).await;
        asked[usize::try_from(call.caller.connection).unwrap()] += 1;
        call.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        let after: Vec<_> = callers.iter().map(|caller| calls.generation(caller)).collect();
        assert_eq!(after, [generations[0], generations[1] + 1]);
        calls.recheck();
        for _ in 0..2 {
            let call = next(&calls).await;
            asked[usize::try_from(call.caller.connection).unwrap()] += 1;
            call.reply.unwrap().send(Ok(Answer::Payload(Vec::new())));
        }

        assert_eq!(asked, [1, 2]);
        calls.disconnected(1);
        calls.recheck_connection(1);
        assert_eq!(calls.generation(&callers[1]), after[1] + 1, "a connection that ended is not rechecked");
    }

    #[tokio::test]
    async fn a_change_between_admission_and_watching_is_asked_about() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let question = Question::of(&calls, &Call::new(CallRequest::Enter, &Caller::default()));
        calls.recheck();

        let mut rights = question.watch(|| ());
        refuse(next(&calls).await, Code::PermissionDenied);

        assert_eq!(rights.until_refused().await.code(), Code::PermissionDenied);
    }
}
