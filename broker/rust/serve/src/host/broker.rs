//! What sessions of every protocol need of the broker.

use std::sync::Arc;
use std::time::Duration;

use penstock_engine::{Engine, Shard};
use tokio::sync::watch;

use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Answer, Call, CallRequest, Calls};
use crate::host::memory::Memory;
use crate::host::quotas::{Allowance, Quotas};
use crate::host::refusal::{Kind, Refusal};
use crate::host::relay::{Relays, Way};
use crate::host::replies::Replies;
use crate::host::topology::{Outcome, TopologyRequest};

/// See the module. It is one for all listeners of a host.
#[derive(Clone)]
pub struct Broker {
    pub engine: Arc<Engine>,
    pub calls: Arc<Calls>,
    pub quotas: Arc<Quotas>,
    pub memory: Arc<Memory>,
    /// Clients that wait for direct replies.
    pub(crate) replies: Arc<Replies>,
    /// Whether the broker stops.
    pub stopping: watch::Receiver<bool>,
    /// Whether each publisher and consumer counts as a stream of its user. Where channels do they count alone.
    pub counts_streams: bool,
    pub message_bytes_max: usize,
    /// What a TLS handshake may take, a connection's log-in after it, and a request's first message.
    pub first_request: Duration,
    /// Whether the certificate of a client says who the user is.
    pub certificates_name_users: bool,
    pub(crate) relays: Way,
}

impl Broker {
    /// The way to the other brokers of its cluster; `None` without one.
    #[must_use]
    pub fn relays(&self) -> Option<&Arc<dyn Relays>> {
        self.relays.get()
    }

    /// Asks who a client is, by its credentials. A connection whose client did not log in is closed after a while.
    ///
    /// # Errors
    /// Why it may not enter.
    pub async fn log_in(&self, caller: &Caller) -> Result<Admitted, Refusal> {
        self.calls.admit(Call::new(CallRequest::Enter, caller)).await
    }

    /// Asks whether the certificate of a client names a user, so that a log-in by it can succeed. Where that cannot be decided now, it
    /// may.
    pub(crate) async fn names_user(&self, caller: &Caller) -> bool {
        let answer = self.calls.admit(Call::new(CallRequest::NamesUser, caller)).await;
        !answer.is_err_and(|refused| refused.kind == Kind::Unauthenticated)
    }

    /// Asks which other broker leads a virtual host; `None` says that clients are served here.
    pub(crate) async fn other_leader(&self, caller: &Caller, vhost: &str, unreachable: String) -> Option<String> {
        let request = CallRequest::FindLeader { vhost: vhost.to_owned(), known: unreachable };
        match self.calls.ask(Call::new(request, caller)).await {
            Ok(Answer::Leader(leader)) => leader,
            _ => None,
        }
    }

    /// Asks for a change, and waits until it is done.
    ///
    /// # Errors
    /// Why it is not.
    pub async fn change(&self, caller: &Caller, vhost: &str, wanted: TopologyRequest) -> Result<Outcome, Refusal> {
        let request = CallRequest::Topology { vhost: vhost.to_owned(), wanted };
        match self.calls.ask(Call::new(request, caller)).await? {
            Answer::Topology(outcome) => Ok(outcome),
            _ => Err(Refusal::bug("the broker answered a change of its topology with something else")),
        }
    }

    /// The vhost of somebody who was admitted, and what a stream of theirs may do in it.
    pub(crate) fn enter(&self, admitted: &Admitted) -> Result<(Arc<Shard>, Allowance), Refusal> {
        let shard = self.shard(&admitted.vhost)?;
        let (quotas, counters) = (&self.quotas, self.engine.counters());
        let allowance = if self.counts_streams {
            Allowance::open(quotas, counters, &admitted.user, &admitted.vhost)?
        } else {
            Allowance::of_call(quotas, counters, &admitted.user, &admitted.vhost)
        };
        Ok((shard, allowance))
    }

    /// One more channel of a user, which counts until this is dropped.
    ///
    /// # Errors
    /// How many the user has, which is as many as it may.
    pub(crate) fn channel(&self, user: &str, vhost: &str) -> Result<Allowance, u64> {
        Allowance::of_channel(&self.quotas, self.engine.counters(), user, vhost)
    }

    /// The first shard of a virtual host that a caller was admitted to.
    ///
    /// # Errors
    /// `Unavailable` where it was closed since: it is deleted, or another broker leads it. The next call hears which.
    pub(crate) fn shard(&self, vhost: &str) -> Result<Arc<Shard>, Refusal> {
        self.engine.shard(vhost).ok_or_else(|| {
            Refusal::new(Kind::Unavailable, format!("virtual host '{vhost}' has just been closed here; try again"))
        })
    }
}
