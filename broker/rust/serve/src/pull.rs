//! Get and Settle: messages taken without a stream belong to the client's connection until they are settled or it ends.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use penstock_engine::{Engine, QueueId, Subscription, SubscriptionOptions};
use penstock_wire::grpc::get::{encode_settle_response, parse_get_request, parse_settle_request};
use rustc_hash::FxHashMap;
use tonic::Status;

use crate::calls::{Admitted, Call, Calls, Kind};
use crate::connection::Caller;
use crate::consume::apply_settlement;
use crate::deliveries::Pending;
use crate::quotas::{Allowance, Quotas};
use crate::stalls::until_free;
use crate::status;

/// One Get gives at most this many messages.
const COUNT_MAX: u32 = 1000;

type Key = (String, u32);

/// What a connection holds: a subscription per queue.
#[derive(Default)]
pub(crate) struct Pulls {
    /// One pull of a connection at a time: none may let go of a subscription that another is about to use.
    turn: tokio::sync::Mutex<()>,
    held: Mutex<FxHashMap<Key, Arc<Subscription>>>,
}

impl Pulls {
    pub fn clear(&self) {
        if let Ok(mut held) = self.held.lock() {
            held.clear();
        }
    }

    fn find(&self, key: &Key) -> Option<Arc<Subscription>> {
        self.held.lock().ok()?.get(key).cloned()
    }

    fn keep(&self, key: Key, subscription: Arc<Subscription>) {
        if let Ok(mut held) = self.held.lock() {
            held.insert(key, subscription);
        }
    }

    /// Lets go of a subscription that holds nothing, so that it stands in no other consumer's way.
    fn release_empty(&self, key: &Key) {
        if let Ok(mut held) = self.held.lock()
            && held.get(key).is_some_and(|subscription| subscription.unsettled_count() == 0)
        {
            held.remove(key);
        }
    }
}

/// What a pull needs to know of the process and the client.
pub(crate) struct PullContext {
    pub engine: Arc<Engine>,
    pub calls: Arc<Calls>,
    pub quotas: Arc<Quotas>,
    pub caller: Caller,
    pub pulls: Arc<Pulls>,
}

impl PullContext {
    pub async fn get(&self, payload: Bytes) -> Result<Vec<u8>, Status> {
        let request = parse_get_request(&payload).map_err(|error| status::of_wire(&error))?;
        let admitted = self.admit(Kind::Get, payload.clone()).await?;
        self.check_room(&admitted)?;
        let Admitted { vhost, queue_id, .. } = admitted;
        let _turn = self.pulls.turn.lock().await;
        let shard = self.engine.shard(&vhost).ok_or_else(|| Status::not_found(format!("no virtual host '{vhost}'")))?;
        let home = shard.home_of(QueueId(queue_id));
        until_free(&home).await;
        let count_max = request.count_max.clamp(1, COUNT_MAX);
        let options = SubscriptionOptions { prefetch: 0, auto_ack: request.auto_ack, exclusive: false, pull: true };
        let key = (vhost, queue_id);
        let held = if request.auto_ack { None } else { self.pulls.find(&key) };
        let subscription = match held {
            Some(subscription) => subscription,
            None => {
                let subscribed = home.subscribe(QueueId(queue_id), options);
                Arc::new(subscribed.map_err(|error| status::of_engine(&error))?)
            }
        };
        if !request.auto_ack {
            self.pulls.keep(key.clone(), Arc::clone(&subscription));
        }
        let mut filled = Vec::new();
        let taken = subscription.take_now(count_max, &mut filled);
        let ready_count = taken.map_err(|error| status::of_engine(&error))?;
        let mut pending = Pending::default();
        pending.extend(filled);
        let response = pending.encode_all(&subscription, ready_count).await;
        self.pulls.release_empty(&key);
        response
    }

    pub async fn settle(&self, payload: Bytes) -> Result<Vec<u8>, Status> {
        let request = parse_settle_request(&payload).map_err(|error| status::of_wire(&error))?;
        let Admitted { vhost, queue_id, .. } = self.admit(Kind::Settle, payload.clone()).await?;
        let _turn = self.pulls.turn.lock().await;
        let key = (vhost, queue_id);
        if let Some(shard) = self.engine.shard(&key.0) {
            until_free(&shard.home_of(QueueId(queue_id))).await;
        }
        let settled_count = match self.pulls.find(&key) {
            Some(subscription) => apply_settlement(&subscription, &request.settlement)?.0,
            None => 0,
        };
        self.pulls.release_empty(&key);
        let mut out = Vec::new();
        encode_settle_response(&mut out, settled_count);
        Ok(out)
    }

    /// Messages that are pulled are not counted as in flight; nobody gets more while what is counted is too much.
    fn check_room(&self, admitted: &Admitted) -> Result<(), Status> {
        let mut allowance = Allowance::open(&self.quotas, self.engine.counters(), &admitted.user, &admitted.vhost)?;
        match allowance.delivery_pause() {
            None => Ok(()),
            Some(_) => Err(Status::resource_exhausted(
                "as many bytes are delivered and not settled as max-in-flight-bytes allows; settle some",
            )),
        }
    }

    async fn admit(&self, kind: Kind, payload: Bytes) -> Result<Admitted, Status> {
        let mut call = Call::new(kind, &self.caller);
        call.payload = payload;
        self.calls.admit(call).await
    }
}
