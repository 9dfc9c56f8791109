//! The actions of Flight: questions and commands that have no other call.

use tonic::Status;

use super::describe;
use super::ending;
use super::messages::{Answers, first};
use super::protocol::{Action, ActionResult, ActionType, framed};
use crate::grpc::input::Input;
use crate::host::broker::Broker;
use crate::host::caller::Caller;

const DESCRIBE_STREAMS: &str = "DescribeStreams";
const END_PRODUCERS: &str = "EndProducers";

/// All actions, with what each is for.
pub(super) fn list() -> Answers {
    let all = [
        (
            DESCRIBE_STREAMS,
            "The offsets, ids and row counts of streams' partitions, at once or when a partition has new rows",
        ),
        (END_PRODUCERS, "Delete names of producers whose job is over"),
    ];
    let told =
        |(kind, description): (&str, &str)| ActionType { kind: kind.to_owned(), description: description.to_owned() };
    Answers::of(all.map(|one| framed(&told(one))))
}

pub(super) async fn perform(broker: Broker, caller: Caller, mut input: Input) -> Result<Answers, Status> {
    let action: Action = first(&mut input).await?;
    let body = match action.kind.as_str() {
        DESCRIBE_STREAMS => describe::answer(broker, caller, &action.body).await?,
        END_PRODUCERS => ending::answer(broker, caller, &action.body).await?,
        other => {
            let kind: String = other.chars().take(100).collect();
            let text = format!("DoAction has no action '{kind}'; use {DESCRIBE_STREAMS} or {END_PRODUCERS}");
            return Err(Status::unimplemented(text));
        }
    };
    Ok(Answers::of([framed(&ActionResult { body: body.into() })]))
}
