//! The action `EndProducers`: deletes names of producers whose job is over, all in one call.
//!
//! What must stay true: a user ends the user's own names only, and an answer means that the names are gone from the disk.

use penstock_wire::NAME_BYTES_MAX;
use serde_json::json;
use tokio::task::spawn_blocking;
use tonic::Status;

use super::asks::Ending;
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Call, CallRequest};

/// The most names in a call.
const NAMES_MAX: usize = 4096;

pub(super) async fn answer(broker: Broker, caller: Caller, body: &[u8]) -> Result<Vec<u8>, Status> {
    let Ending { vhost, producers } = Ending::parse(body)?;
    if producers.len() > NAMES_MAX {
        return Err(Status::invalid_argument(format!(
            "`producers` has at most {NAMES_MAX} names; call again with the rest"
        )));
    }
    if producers.iter().any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
        return Err(Status::invalid_argument("a producer's name has 1 to 255 bytes; check `producers`"));
    }
    let admitted = broker.calls.admit(Call::new(CallRequest::OpenPublish { vhost }, &caller)).await?;
    let shard = broker.shard(&admitted.vhost)?;
    // It waits for the disk.
    let ended = spawn_blocking(move || shard.end_producers(&producers, &admitted.user)).await;
    let ended = ended.map_err(|_| Status::internal("deleting the names failed"))?;
    let ended = ended.map_err(|error| status::of_engine(&error))?;
    Ok(json!({ "ended": ended }).to_string().into_bytes())
}
