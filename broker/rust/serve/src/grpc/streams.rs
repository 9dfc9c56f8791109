//! `penstock.v1.StreamService`: opens readers after Python admitted them; every other method goes to Python as it came.

use std::sync::Arc;

use penstock_engine::{QueueId, ReadFrom, ReadSettings};
use penstock_wire::grpc::read::{ReadFrame, Start, parse_read_request};
use tonic::Status;
use tonic::body::Body;

use crate::grpc::admin::ask;
use crate::grpc::deliveries::Responses;
use crate::grpc::input::Input;
use crate::grpc::messaging::receive;
use crate::grpc::read::ReadStream;
use crate::grpc::responses::respond;
use crate::grpc::service::Answers;
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Admitted, Call, CallRequest};
use crate::host::rights::Question;
use crate::host::stalls::{Later, soon};
use crate::host::stream_source::{AtReplica, StreamSource};

#[derive(Clone)]
pub(crate) struct Streams {
    pub broker: Broker,
}

impl Answers for Streams {
    const NAME: &'static str = "penstock.v1.StreamService";

    fn broker(&self) -> &Broker {
        &self.broker
    }

    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let broker = self.broker;
        if !request.uri().path().ends_with("/Read") {
            return ask(broker.calls, broker.message_bytes_max, request).await;
        }
        let opened = receive(request, broker.message_bytes_max);
        let response = opened.map(|(caller, input)| {
            let account = Arc::clone(&caller.state.account);
            respond(&account, open_read(broker, caller, input))
        });
        response.unwrap_or_else(Status::into_http)
    }
}

async fn open_read(broker: Broker, caller: Caller, mut input: Input) -> Result<ReadStream, Status> {
    let first = input.message().await?.ok_or_else(status::not_opened)?;
    let parsed = parse_read_request(&first).map_err(|error| status::of_wire(&error))?;
    let ReadFrame::Open(open) = parsed else { return Err(status::not_opened()) };
    if open.single_active && open.group.is_empty() {
        return Err(Status::invalid_argument("single_active is about the readers of a group; name a group"));
    }
    let request = CallRequest::OpenRead {
        vhost: open.vhost.to_owned(),
        partition: open.partition.to_owned(),
        group: open.group.to_owned(),
        single_active: open.single_active,
        from_replica: open.from_replica,
    };
    let responses = Responses::new(&caller.state.account);
    let call = Call::new(request, &caller);
    let again = call.again();
    let question = Question::of(&broker.calls, &call);
    let Admitted { vhost, queue_id, user, replica, .. } = broker.calls.admit(call).await?;
    let credit = Some(open.credit).filter(|&credit| credit > 0);
    let (end, from) = (open.end, from_of(open.start));
    if let Some(replica) = replica {
        let opened = AtReplica::open(replica, (QueueId(queue_id), from, end), broker.engine.counters()).await?;
        // A replica tells a deletion to the readers that it has, and one may have come before this one.
        if broker.calls.admit(again).await?.queue_id != queue_id {
            return Err(status::led_elsewhere("the stream was deleted and declared anew; read again"));
        }
        let (rights, reader) = (question.watch(&user, &vhost, || ()), StreamSource::Replica(opened));
        return Ok(ReadStream::new(input, broker.stopping, rights, reader, credit, responses));
    }
    let shard = broker.shard(&vhost)?;
    let (group, single_active) = (open.group.to_owned(), open.single_active);
    // Looking for a time reads records, which may have to come from the disk.
    let reading = tokio::task::spawn_blocking(move || {
        let group = Some(group.as_str()).filter(|group| !group.is_empty());
        let (home, settings) = (shard.home_of(QueueId(queue_id)), ReadSettings { from, end, group, single_active });
        home.read(QueueId(queue_id), settings).map(|reader| Later::new(&home, reader))
    });
    let opened = reading.await.map_err(|_| Status::internal("opening a reader failed"))?;
    let reader = opened.map_err(|error| status::of_engine(&error))?;
    let (shard, place) = (Arc::clone(reader.shard()), Arc::downgrade(reader.place()));
    let rights = question.watch(&user, &vhost, move || {
        // The next one of its group goes on at once, also when this one's client reads nothing any more.
        place.upgrade().into_iter().for_each(|place| {
            soon(&shard, move || place.leave());
        });
    });
    let reader = StreamSource::Queue(reader);
    Ok(ReadStream::new(input, broker.stopping, rights, reader, credit, responses))
}

fn from_of(start: Start) -> ReadFrom {
    match start {
        Start::Next => ReadFrom::Next,
        Start::First => ReadFrom::First,
        Start::Last => ReadFrom::Last,
        Start::Offset(offset) => ReadFrom::Offset(offset),
        Start::Timestamp(timestamp_ms) => ReadFrom::Timestamp(timestamp_ms),
        Start::LastCount(count) => ReadFrom::LastCount(count),
    }
}
