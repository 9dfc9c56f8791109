//! The actions of Flight: questions that have no other call.

use bytes::Bytes;
use tonic::{Status, Streaming};

use super::describe;
use super::messages::{Answers, first};
use super::protocol::{Action, ActionResult, ActionType, framed};
use crate::caller::Caller;
use crate::messaging::Messaging;

const DESCRIBE_STREAMS: &str = "DescribeStreams";

/// All actions, with what each is for.
pub(super) fn list() -> Answers {
    let description =
        "The offsets, ids and row counts of streams' partitions, at once or when a partition has new rows";
    Answers::of([framed(&ActionType { kind: DESCRIBE_STREAMS.to_owned(), description: description.to_owned() })])
}

pub(super) async fn perform(
    messaging: Messaging,
    caller: Caller,
    mut input: Streaming<Bytes>,
) -> Result<Answers, Status> {
    let action: Action = first(&mut input).await?;
    if action.kind != DESCRIBE_STREAMS {
        let kind: String = action.kind.chars().take(100).collect();
        let text = format!("DoAction has no action '{kind}'; use {DESCRIBE_STREAMS}");
        return Err(Status::unimplemented(text));
    }
    let body = describe::answer(messaging, caller, &action.body).await?;
    Ok(Answers::of([framed(&ActionResult { body: body.into() })]))
}
