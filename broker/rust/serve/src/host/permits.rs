//! What a publisher may write: Python's answers, kept until permissions or topology change.
//!
//! An exchange is open, closed, or open for some routing keys; of the last kind each key is asked for once, many at a time.
//! What is kept is cut between rounds and never within one, and changes make a round begin anew only so often, so that every
//! round comes to its end. One more change counts from the next round on.

use std::collections::HashMap;

use penstock_wire::WireError;
use penstock_wire::amqp::properties::{expiration_of, priority_of};
use penstock_wire::is_same;
use rustc_hash::FxHashMap;

use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Answer, Call, CallRequest, Calls};
use crate::host::refusal::{Kind, Refusal};

/// Exchanges a stream asked for: more than these are forgotten and asked for again.
const PERMITS_MAX: usize = 4096;

/// Routing keys that are known of all exchanges together.
const KEYS_MAX: usize = 16_384;

/// Routing keys that are asked for at a time.
const KEYS_ASKED_MAX: usize = 256;

/// How often a round begins anew because permissions or topology have changed.
const REFRESHES_MAX: usize = 8;

/// AMQP's bound. Longer keys are refused with their message.
const KEY_BYTES_MAX: usize = 255;

/// What Python said of an exchange. Clients choose the keys, many of them: they are hashed so that nobody can make them
/// collide.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    Open,
    ByKey(HashMap<Vec<u8>, bool>),
    Closed(Refusal),
}

/// What is known of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    Admitted,
    Denied(&'a Refusal),
    /// The exchange is open, and not for this routing key.
    KeyDenied,
    UnknownExchange,
    UnknownKey,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    generation: u64,
    /// The last change that was looked at, whomever it concerned.
    looked_at: u64,
    /// How often this round began anew.
    refresh_count: usize,
    last_admitted: Option<Vec<u8>>,
    known: FxHashMap<Vec<u8>, Permit>,
    key_count: usize,
    /// Whether the user may publish with another user's name.
    impersonation: Option<bool>,
}

impl Permits {
    /// Begins a round: forgets everything when there is too much of it.
    pub fn begin_round(&mut self) {
        self.refresh_count = 0;
        if self.known.len() > PERMITS_MAX || self.key_count > KEYS_MAX {
            *self = Permits { generation: self.generation, looked_at: self.looked_at, ..Permits::default() };
        }
    }

    /// Forget everything when the generation has moved on, and the round did not begin anew too often. The generation is
    /// looked up only after a change.
    pub fn refresh(&mut self, last_change: u64, generation: impl FnOnce() -> u64) {
        if self.looked_at == last_change || self.refresh_count >= REFRESHES_MAX {
            return;
        }
        self.looked_at = last_change;
        let generation = generation();
        if self.generation != generation {
            let refresh_count = self.refresh_count + 1;
            *self = Permits { generation, looked_at: last_change, refresh_count, ..Permits::default() };
        }
    }

    pub fn look_up(&mut self, exchange: &[u8], key: &[u8]) -> Verdict<'_> {
        if self.last_admitted.as_ref().is_some_and(|last| is_same(last, exchange)) {
            return Verdict::Admitted;
        }
        match self.known.get(exchange) {
            None => Verdict::UnknownExchange,
            Some(Permit::Closed(denial)) => Verdict::Denied(denial),
            Some(Permit::ByKey(keys)) => match keys.get(key) {
                Some(true) => Verdict::Admitted,
                Some(false) => Verdict::KeyDenied,
                None if key.len() > KEY_BYTES_MAX => Verdict::Admitted,
                None => Verdict::UnknownKey,
            },
            Some(Permit::Open) => {
                self.last_admitted = Some(exchange.to_vec());
                Verdict::Admitted
            }
        }
    }

    /// Say whether the user may publish with another user's name, when that is known.
    pub fn impersonation(&self) -> Option<bool> {
        self.impersonation
    }

    pub fn learn(&mut self, exchange: Vec<u8>, permit: Permit) {
        self.known.insert(exchange, permit);
    }

    fn learn_keys(&mut self, exchange: &[u8], keys: &[Vec<u8>], answers: &[bool]) {
        if let Some(Permit::ByKey(known)) = self.known.get_mut(exchange) {
            known.extend(keys.iter().cloned().zip(answers.iter().copied()));
            self.key_count += keys.len();
        }
    }
}

/// Who asks, and in which virtual host.
pub(crate) struct Asker<'a> {
    pub calls: &'a Calls,
    pub caller: &'a Caller,
    pub user: &'a str,
    pub vhost: &'a str,
}

impl Asker<'_> {
    /// Asks for an exchange. An error concerns the caller, not the exchange.
    pub async fn exchange(&self, permits: &mut Permits, exchange: Vec<u8>) -> Result<(), Refusal> {
        let (vhost, name) = (self.vhost.to_owned(), text(&exchange));
        let call = Call::new(CallRequest::PermitExchange { vhost, exchange: name }, self.caller);
        let permit = match self.calls.ask_permit(call).await {
            Ok(Answer::Admitted(Admitted { by_key: true, .. })) => Permit::ByKey(HashMap::new()),
            Ok(_) => Permit::Open,
            Err(refused) if ends_stream(&refused) => return Err(refused),
            // The details are about the one call that was refused.
            Err(refused) => Permit::Closed(Refusal { details: Vec::new(), ..refused }),
        };
        permits.learn(exchange, permit);
        Ok(())
    }

    /// Asks for routing keys of an exchange that is open for some.
    pub async fn keys(&self, permits: &mut Permits, exchange: &[u8], keys: &[Vec<u8>]) -> Result<(), Refusal> {
        for keys in keys.chunks(KEYS_ASKED_MAX) {
            let (vhost, name) = (self.vhost.to_owned(), text(exchange));
            let request = CallRequest::PermitKeys { vhost, exchange: name, keys: keys.to_vec() };
            match self.calls.ask_permit(Call::new(request, self.caller)).await? {
                Answer::Keys(answers) if answers.len() == keys.len() => permits.learn_keys(exchange, keys, &answers),
                _ => return Err(Refusal::bug("the broker did not answer for every routing key")),
            }
        }
        Ok(())
    }

    /// Ask whether the user may publish with another user's name. An error concerns the caller, not the name.
    pub async fn impersonation(&self, permits: &mut Permits) -> Result<(), Refusal> {
        let call = Call::new(CallRequest::PermitUserId { vhost: self.vhost.to_owned() }, self.caller);
        let may = match self.calls.ask_permit(call).await {
            Ok(_) => true,
            Err(refused) if ends_stream(&refused) => return Err(refused),
            Err(_) => false,
        };
        permits.impersonation = Some(may);
        Ok(())
    }

    /// Ask whether the user may publish with this name as `user_id`, for rows that are not published by a stream.
    ///
    /// # Errors
    /// Why not.
    pub async fn admit_user_id(&self, user_id: &[u8], user: &[u8]) -> Result<(), Refusal> {
        let mut permits = Permits::default();
        self.impersonation(&mut permits).await?;
        if permits.impersonation == Some(true) { Ok(()) } else { Err(user_id_denial(user_id, user)) }
    }

    /// Asks until it is known whether the caller may write all these routing keys to one exchange. Forgets what it knew when
    /// permissions or topology have changed.
    ///
    /// # Errors
    /// Why not, of the first that is denied.
    pub async fn admit(&self, permits: &mut Permits, exchange: &[u8], keys: &[&[u8]]) -> Result<(), Refusal> {
        permits.begin_round();
        loop {
            let generation = || self.calls.generation(self.caller, self.user, self.vhost);
            permits.refresh(self.calls.last_change(self.caller), generation);
            let mut unknown = Vec::new();
            let mut is_known = true;
            for key in keys {
                match permits.look_up(exchange, key) {
                    Verdict::Admitted => {}
                    Verdict::Denied(denial) => return Err(denial.clone()),
                    Verdict::KeyDenied => return Err(key_denial(exchange, key)),
                    Verdict::UnknownExchange => is_known = false,
                    Verdict::UnknownKey => unknown.push(*key),
                }
                if !is_known {
                    break;
                }
            }
            if !is_known {
                self.exchange(permits, exchange.to_vec()).await?;
            } else if unknown.is_empty() {
                return Ok(());
            } else {
                unknown.sort_unstable();
                unknown.dedup();
                let keys: Vec<Vec<u8>> = unknown.into_iter().map(<[u8]>::to_vec).collect();
                self.keys(permits, exchange, &keys).await?;
            }
        }
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

pub(crate) fn user_id_denial(user_id: &[u8], user: &[u8]) -> Refusal {
    let (user_id, user) = (String::from_utf8_lossy(user_id), String::from_utf8_lossy(user));
    let reason = format!(
        "user_id property set to '{user_id}' but authenticated user was '{user}'; leave the property out, or let an \
         administrator give the user the tag 'impersonator'"
    );
    Refusal::new(Kind::PreconditionFailed, reason)
}

pub(crate) fn key_denial(exchange: &[u8], key: &[u8]) -> Refusal {
    let (exchange, key) = (String::from_utf8_lossy(exchange), String::from_utf8_lossy(key));
    let reason = format!(
        "exchange '{exchange}' is closed to this user for write with the routing key '{key}'; let an administrator set the \
         user's topic permission to a write pattern that matches the key"
    );
    Refusal::new(Kind::AccessRefused, reason)
}

/// Return why a row with times or a priority is denied: they would have no effect.
pub(crate) fn times_denial(block: &[u8], delay_ms: Option<u64>) -> Result<Option<Refusal>, WireError> {
    let times = delay_ms.map(|_| "delay_ms").or(expiration_of(block)?.map(|_| "expiration"));
    let name = times.or(priority_of(block)?.map(|_| "priority"));
    Ok(name.map(|name| {
        let reason = format!("the property '{name}' is not supported yet for rows; send them without it");
        Refusal::new(Kind::Unsupported, reason)
    }))
}

/// Refusals that concern the caller, not one exchange.
fn ends_stream(refused: &Refusal) -> bool {
    matches!(
        refused.kind,
        Kind::Unauthenticated | Kind::Unavailable | Kind::LedElsewhere | Kind::Bug | Kind::LimitReached
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use super::{Asker, KEYS_MAX, Permit, Permits, REFRESHES_MAX, Verdict};
    use crate::host::caller::Caller;
    use crate::host::calls::{Admitted, Answer, Calls};
    use crate::host::refusal::{Kind, Refusal};

    /// A publisher whose answers were always forgotten before the last of them came asked for ever and stored nothing.
    #[tokio::test]
    async fn a_round_comes_to_its_end_however_often_permissions_change() {
        let calls = Arc::new(Calls::new(8).unwrap());
        let deciding = Arc::clone(&calls);
        let decider = tokio::spawn(async move {
            for _ in 0..10 * REFRESHES_MAX {
                let call = loop {
                    match deciding.take().pop() {
                        Some(call) => break call,
                        None => tokio::task::yield_now().await,
                    }
                };
                deciding.forget(None);
                call.reply.unwrap().send(Ok(Answer::Admitted(Admitted::default())));
            }
        });
        let caller = Caller::default();
        let asker = Asker { calls: &calls, caller: &caller, user: "anna", vhost: "/" };
        let mut permits = Permits::default();

        tokio::select! {
            admitted = asker.admit(&mut permits, b"logs", &[b"key"]) => admitted.unwrap(),
            _ = decider => panic!("it asks for ever"),
        }
        permits.begin_round();
        let generation = || calls.generation(&caller, "anna", "/");
        permits.refresh(calls.last_change(&caller), generation);
        assert_eq!(permits.look_up(b"logs", b""), Verdict::UnknownExchange, "the next round asks again");
    }

    /// Those above the bound of waiting calls were refused, which ended their streams.
    #[tokio::test]
    async fn publishers_that_all_ask_at_once_wait_for_their_turn() {
        const PUBLISHERS: usize = 5_000;
        let calls = Arc::new(Calls::new(8).unwrap());
        let callers: Vec<_> = (0..50).map(|connection| Caller { connection, ..Caller::default() }).collect();
        let asking: Vec<_> = (0..PUBLISHERS)
            .map(|number| {
                let (calls, caller) = (Arc::clone(&calls), callers[number % callers.len()].clone());
                tokio::spawn(async move {
                    let asker = Asker { calls: &calls, caller: &caller, user: "anna", vhost: "/" };
                    asker.admit(&mut Permits::default(), b"logs", &[b"key"]).await
                })
            })
            .collect();

        let (mut decided, mut most) = (0, 0);
        while decided < PUBLISHERS {
            tokio::task::yield_now().await;
            let waiting = calls.take();
            most = most.max(waiting.len());
            for call in waiting {
                decided += 1;
                call.reply.unwrap().send(Ok(Answer::Admitted(Admitted::default())));
            }
        }

        for asked in asking {
            asked.await.unwrap().unwrap();
        }
        assert!(most <= 256, "{most} asked at a time");
    }

    #[test]
    fn an_admitted_exchange_is_asked_for_again_after_a_change() {
        let mut permits = Permits::default();
        permits.learn(b"logs".to_vec(), Permit::Open);
        assert_eq!(permits.look_up(b"logs", b""), Verdict::Admitted);

        permits.refresh(1, || 1);

        assert_eq!(permits.look_up(b"logs", b""), Verdict::UnknownExchange);
    }

    #[test]
    fn a_denied_exchange_stays_denied_beside_an_admitted_one() {
        let mut permits = Permits::default();
        let denial = Refusal::new(Kind::AccessRefused, "no");
        permits.learn(b"a".to_vec(), Permit::Open);
        permits.learn(b"b".to_vec(), Permit::Closed(denial.clone()));

        assert_eq!(permits.look_up(b"a", b""), Verdict::Admitted);
        assert_eq!(permits.look_up(b"b", b""), Verdict::Denied(&denial));
    }

    #[test]
    fn each_key_of_a_narrowed_exchange_is_asked_for_once() {
        let mut permits = Permits::default();
        permits.learn(b"logs".to_vec(), Permit::ByKey(HashMap::new()));
        assert_eq!(permits.look_up(b"logs", b"a"), Verdict::UnknownKey);

        permits.learn_keys(b"logs", &[b"a".to_vec(), b"b".to_vec()], &[true, false]);

        assert_eq!(permits.look_up(b"logs", b"a"), Verdict::Admitted);
        assert_eq!(permits.look_up(b"logs", b"b"), Verdict::KeyDenied);
        assert_eq!(permits.look_up(b"logs", b"c"), Verdict::UnknownKey);
    }

    #[test]
    fn too_many_keys_are_forgotten_between_rounds_and_never_within_one() {
        let mut permits = Permits::default();
        permits.learn(b"logs".to_vec(), Permit::ByKey(HashMap::new()));
        let keys: Vec<Vec<u8>> = (0..=KEYS_MAX).map(|number| number.to_string().into_bytes()).collect();
        permits.begin_round();
        permits.learn_keys(b"logs", &keys, &vec![true; keys.len()]);
        assert_eq!(permits.look_up(b"logs", b"0"), Verdict::Admitted);

        permits.begin_round();

        assert_eq!(permits.look_up(b"logs", b"0"), Verdict::UnknownExchange);
    }
}
