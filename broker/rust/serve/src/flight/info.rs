//! What there is to read: a stream's partitions as endpoints, each a ticket for a range of offsets.
//!
//! Python knows the streams and says who may see them; here its answers become Flight's words.

use penstock_arrow::{Encoder, Projection};
use penstock_engine::QueueId;
use penstock_wire::WireError;
use penstock_wire::protobuf::{Reader, put_text, put_varint};
use tonic::Status;

use super::asks::{Listing, Ticket, Wanted};
use super::describe::outlook;
use super::get::projection_of;
use super::messages::{Answers, first, not_encoded};
use super::protocol::{
    Criteria, FlightDescriptor, FlightEndpoint, FlightInfo, FlightTicket, PATH, SchemaResult, framed,
};
use crate::grpc::input::Input;
use crate::grpc::status;
use crate::host::broker::Broker;
use crate::host::caller::Caller;
use crate::host::calls::{Answer, Call, CallRequest, Calls};

/// One answer names at most so many endpoints.
const ENDPOINTS_MAX: u32 = 4096;

/// Runs of a partition that a split goes by.
const RUNS_MAX: usize = 1_000;

/// `PartitionOffsets.archive`.
const ARCHIVE: u32 = 10;

const OFFSETS: &str = "the offsets of a stream";
const STREAMS: &str = "the list of streams";

/// A partition as `GetOffsets` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Partition {
    name: String,
    first: u64,
    next: u64,
    message_count: u64,
    bytes: u64,
    at_timestamp: Option<u64>,
    /// What the archive has beside.
    archive: Option<Archived>,
    id: u64,
    /// The offsets with messages in the log, where they were looked for.
    runs: Option<Vec<(u64, u64)>>,
}

/// What the archive has below a partition's first offset, as `GetOffsets` tells of it; `at_timestamp` is absent when the time
/// lies behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Archived {
    first: u64,
    next: u64,
    message_count: Option<u64>,
    bytes: u64,
    at_timestamp: Option<u64>,
}

impl Partition {
    /// The first offset that there is, here or in the archive.
    fn begin(&self) -> u64 {
        self.archive.map_or(self.first, |archive| archive.first.min(self.first))
    }

    /// A range without what went before it was archived: one or two parts, so that a reader sees what is missing.
    fn there(&self, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        let gone = self.archive.map_or((self.first, self.first), |archive| (archive.next.min(self.first), self.first));
        let below = (from, to.min(gone.0));
        let above = (from.max(gone.1), to);
        let is_split = below.0 < below.1 && above.0 < above.1 && gone.0 < gone.1;
        let parts = if is_split { [Some(below), Some(above)] } else { [Some((from, to)), None] };
        parts.into_iter().flatten()
    }

    /// The parts of a range that have rows, as far as it is known.
    fn runs_in(&self, (from, to): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        let all = vec![(self.first, self.next)];
        let archived = self.archive.map(|archive| (archive.first, archive.next.min(self.first)));
        let runs = archived.into_iter().chain(self.runs.clone().unwrap_or(all));
        runs.map(move |(first, end)| (first.max(from), end.min(to))).filter(|(first, end)| first < end)
    }

    fn rows_in(&self, range: (u64, u64)) -> u64 {
        self.runs_in(range).map(|(first, end)| end - first).sum()
    }

    /// A range in parts of as many rows, so many that all ranges together come to `endpoints_min` or more, and never one
    /// without rows beside others.
    fn split(
        &self,
        (from, to): (u64, u64),
        total: u64,
        endpoints_min: u32,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let runs: Vec<(u64, u64)> = self.runs_in((from, to)).collect();
        let rows = runs.iter().map(|(first, end)| end - first).sum::<u64>();
        let share = u128::from(endpoints_min) * u128::from(rows);
        let parts = u64::try_from(share.div_ceil(u128::from(total.max(1)))).unwrap_or(1).clamp(1, rows.max(1));
        let at = move |part: u64| {
            let mut before = u64::try_from(u128::from(rows) * u128::from(part) / u128::from(parts)).unwrap_or(0);
            for &(first, end) in runs.iter().filter(|_| part > 0 && part < parts) {
                if before < end - first {
                    return first + before;
                }
                before -= end - first;
            }
            if part == 0 { from } else { to }
        };
        (0..parts).map(move |part| (at(part), at(part + 1)))
    }

    fn at_timestamp(&self) -> Option<u64> {
        self.archive.and_then(|archive| archive.at_timestamp).or(self.at_timestamp)
    }

    /// Messages and their bytes, when they are known.
    fn totals(&self) -> Option<(u64, u64)> {
        let Some(archive) = self.archive else { return Some((self.message_count, self.bytes)) };
        Some((self.message_count + archive.message_count?, self.bytes + archive.bytes))
    }
}

/// A stream as `ListStreams` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub name: String,
    pub partitions: Vec<String>,
    message_count: u64,
    bytes: u64,
}

/// Which call it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Info,
    Schema,
    List,
}

pub(super) async fn answer(broker: Broker, caller: Caller, mut input: Input, asked: Asked) -> Result<Answers, Status> {
    if asked == Asked::List {
        let criteria: Criteria = first(&mut input).await?;
        let infos = list(&broker.calls, &caller, &criteria.expression).await?;
        return Ok(Answers::of(infos.iter().map(framed)));
    }
    let info = describe(&broker, &caller, first(&mut input).await?).await?;
    let answer = if asked == Asked::Info { framed(&info) } else { framed(&SchemaResult { schema: info.schema }) };
    Ok(Answers::of([answer]))
}

/// The endpoints of a descriptor.
async fn describe(broker: &Broker, caller: &Caller, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let wanted = Wanted::of(&descriptor)?;
    let projection = projection_of(wanted.columns.as_deref())?;
    let endpoints_min = wanted.endpoints_min.unwrap_or(0);
    if endpoints_min > ENDPOINTS_MAX {
        return Err(Status::invalid_argument(format!("endpoints_min is at most {ENDPOINTS_MAX}; ask for fewer")));
    }
    let mut partitions = offsets(&broker.calls, caller, &wanted).await?;
    if endpoints_min > 1 {
        find_runs(broker, &wanted.vhost, &mut partitions).await?;
    }
    let ranges: Vec<(u64, u64)> = partitions.iter().map(|partition| range_of(&wanted, partition)).collect();
    let mut info = info_of(&projection, descriptor)?;
    let total = partitions.iter().zip(&ranges).map(|(partition, range)| partition.rows_in(*range)).sum();
    for (partition, &range) in partitions.iter().zip(&ranges) {
        for (from, to) in partition.there(range).flat_map(|range| partition.split(range, total, endpoints_min)) {
            info.endpoints.push(endpoint(&Ticket {
                vhost: wanted.vhost.clone(),
                partition: partition.name.clone(),
                from,
                to: Some(to),
                columns: wanted.columns.clone(),
                ..Ticket::default()
            }));
        }
    }
    let is_whole = partitions.iter().zip(&ranges).all(|(found, range)| *range == (found.begin(), found.next));
    let totals: Option<Vec<(u64, u64)>> = partitions.iter().map(Partition::totals).collect();
    let Some(totals) = totals.filter(|_| is_whole) else { return Ok(info) };
    let (records, bytes) = totals.iter().fold((0, 0), |(records, bytes), found| (records + found.0, bytes + found.1));
    Ok(with_totals(info, records, bytes))
}

/// All streams of a virtual host, each with one endpoint for each partition.
async fn list(calls: &Calls, caller: &Caller, expression: &[u8]) -> Result<Vec<FlightInfo>, Status> {
    let Listing { vhost } = Listing::parse(expression)?;
    let mut infos = Vec::new();
    for stream in streams(calls, caller, &vhost, None).await? {
        let path = if vhost.is_empty() { vec![stream.name] } else { vec![vhost.clone(), stream.name] };
        let descriptor = FlightDescriptor { kind: PATH, path, ..FlightDescriptor::default() };
        let mut info = info_of(&Projection::all(), descriptor)?;
        for partition in stream.partitions {
            info.endpoints.push(endpoint(&Ticket { vhost: vhost.clone(), partition, ..Ticket::default() }));
        }
        infos.push(with_totals(info, stream.message_count, stream.bytes));
    }
    Ok(infos)
}

fn info_of(projection: &Projection, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
    let schema = Encoder::schema_alone(&projection.schema()).map_err(|error| not_encoded(&error))?;
    Ok(FlightInfo { schema, descriptor: Some(descriptor), endpoints: Vec::new(), total_records: -1, total_bytes: -1 })
}

fn with_totals(info: FlightInfo, records: u64, bytes: u64) -> FlightInfo {
    let known = |number: u64| i64::try_from(number).unwrap_or(-1);
    FlightInfo { total_records: known(records), total_bytes: known(bytes), ..info }
}

fn endpoint(ticket: &Ticket) -> FlightEndpoint {
    FlightEndpoint { ticket: Some(FlightTicket { ticket: ticket.to_json().into() }) }
}

/// What is wanted of a partition, within what is there.
fn range_of(wanted: &Wanted, partition: &Partition) -> (u64, u64) {
    let from = match (wanted.from_timestamp_ms, wanted.from) {
        (Some(_), _) => partition.at_timestamp().unwrap_or(partition.next),
        (None, from) => from.unwrap_or(partition.begin()),
    };
    let from = from.clamp(partition.begin(), partition.next.max(partition.begin()));
    (from, wanted.to.unwrap_or(partition.next).clamp(from, partition.next.max(from)))
}

/// Looks which offsets of the partitions have rows.
async fn find_runs(broker: &Broker, vhost: &str, partitions: &mut [Partition]) -> Result<(), Status> {
    let shard = broker.shard(if vhost.is_empty() { "/" } else { vhost })?;
    for partition in partitions {
        let found = outlook(&shard, QueueId(partition.id), RUNS_MAX).await?;
        partition.runs = found.map(|outlook| outlook.runs);
    }
    Ok(())
}

async fn offsets(calls: &Calls, caller: &Caller, wanted: &Wanted) -> Result<Vec<Partition>, Status> {
    let mut request = Vec::new();
    put_text(&mut request, 1, &wanted.vhost);
    put_text(&mut request, 2, &wanted.stream);
    if let Some(timestamp_ms) = wanted.from_timestamp_ms {
        put_varint(&mut request, 3 << 3);
        put_varint(&mut request, timestamp_ms);
    }
    // With what the archive has.
    put_varint(&mut request, 4 << 3);
    put_varint(&mut request, 1);
    let response = ask(calls, caller, "GetOffsets", request).await?;
    repeated(&response, OFFSETS, parse_partition).map_err(|error| status::of_wire(&error))
}

/// The streams of a vhost, or the one of that name.
pub(super) async fn streams(
    calls: &Calls,
    caller: &Caller,
    vhost: &str,
    name: Option<&str>,
) -> Result<Vec<Listed>, Status> {
    let mut request = Vec::new();
    put_text(&mut request, 1, vhost);
    put_text(&mut request, 2, name.unwrap_or_default());
    let response = ask(calls, caller, "ListStreams", request).await?;
    repeated(&response, STREAMS, parse_stream).map_err(|error| status::of_wire(&error))
}

/// A unary method of the broker, asked on the caller's behalf.
pub(super) async fn ask(calls: &Calls, caller: &Caller, method: &str, request: Vec<u8>) -> Result<Vec<u8>, Status> {
    let request = CallRequest::Unary { method: method.to_owned(), payload: request.into() };
    match calls.ask(Call::new(request, caller)).await? {
        Answer::Payload(payload) => Ok(payload),
        _ => Err(Status::internal("the broker answered a call with an admission")),
    }
}

/// The messages in field 1.
fn repeated<T>(
    bytes: &[u8],
    what: &'static str,
    parse: impl Fn(&[u8]) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let mut reader = Reader::new(bytes, what);
    let mut found = Vec::new();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => found.push(parse(reader.slice(field, wire_type)?)?),
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(found)
}

fn parse_partition(bytes: &[u8]) -> Result<Partition, WireError> {
    let mut reader = Reader::new(bytes, OFFSETS);
    let mut partition = Partition::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => partition.name = text(reader.slice(field, wire_type)?),
            2 => partition.first = reader.uint(field, wire_type)?,
            3 => partition.next = reader.uint(field, wire_type)?,
            4 => partition.message_count = reader.uint(field, wire_type)?,
            5 => partition.bytes = reader.uint(field, wire_type)?,
            8 => partition.at_timestamp = Some(reader.uint(field, wire_type)?),
            9 => partition.id = reader.uint(field, wire_type)?,
            ARCHIVE => partition.archive = Some(parse_archived(reader.slice(field, wire_type)?)?),
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(partition)
}

fn parse_archived(bytes: &[u8]) -> Result<Archived, WireError> {
    let mut reader = Reader::new(bytes, OFFSETS);
    let mut archived = Archived::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => archived.first = reader.uint(field, wire_type)?,
            2 => archived.next = reader.uint(field, wire_type)?,
            3 => archived.message_count = Some(reader.uint(field, wire_type)?),
            4 => archived.bytes = reader.uint(field, wire_type)?,
            5 => archived.at_timestamp = Some(reader.uint(field, wire_type)?),
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(archived)
}

fn parse_stream(bytes: &[u8]) -> Result<Listed, WireError> {
    let mut reader = Reader::new(bytes, STREAMS);
    let mut stream = Listed::default();
    while let Some((field, wire_type)) = reader.field()? {
        match field {
            1 => stream.name = text(reader.slice(field, wire_type)?),
            2 => stream.partitions.push(text(reader.slice(field, wire_type)?)),
            4 => stream.message_count = reader.uint(field, wire_type)?,
            5 => stream.bytes = reader.uint(field, wire_type)?,
            _ => reader.skip(wire_type)?,
        }
    }
    Ok(stream)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the credentials are those of a user: every user may ask this.
pub(super) async fn check_caller(calls: &Calls, caller: &Caller) -> Result<(), Status> {
    ask(calls, caller, "ListVhosts", Vec::new()).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::{Archived, Partition, Wanted, range_of};

    fn split(range: (u64, u64), total: u64, endpoints_min: u32) -> Vec<(u64, u64)> {
        Partition { first: range.0, next: range.1, ..Partition::default() }.split(range, total, endpoints_min).collect()
    }

    #[test]
    fn parts_of_a_range_follow_each_other_without_a_gap() {
        assert_eq!(split((1, 11), 10, 3), [(1, 4), (4, 7), (7, 11)]);
        assert_eq!(split((1, 11), 10, 0), [(1, 11)]);
        assert_eq!(split((5, 7), 2, 100), [(5, 6), (6, 7)]);
        assert_eq!(split((5, 5), 0, 8), [(5, 5)]);
        assert_eq!(split((0, u64::MAX), u64::MAX, 2).last(), Some(&(u64::MAX / 2, u64::MAX)));
    }

    #[test]
    fn a_small_partition_beside_a_large_one_stays_whole() {
        assert_eq!(split((1, 3), 1_000, 10).len(), 1);
        assert_eq!(split((1, 999), 1_000, 10).len(), 10);
    }

    #[test]
    fn parts_have_as_many_rows_whatever_a_start_skipped() {
        let next = 111 + (1 << 32);
        let runs = Some(vec![(11, 81), (81 + (1 << 32), next)]);
        let archive = Some(Archived { first: 1, next: 11, ..Archived::default() });
        let partition = Partition { first: 11, next, runs, archive, ..Partition::default() };

        let parts: Vec<_> = partition.split((1, next), 110, 4).collect();

        let rows: Vec<_> = parts.iter().map(|&part| partition.rows_in(part)).collect();
        assert_eq!(rows, [27, 28, 27, 28]);
        assert_eq!((parts[0].0, parts[3].1), (1, next));
        assert!(parts.windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(partition.split((85, 200), 110, 4).collect::<Vec<_>>(), [(85, 200)], "nothing but skipped offsets");
    }

    #[test]
    fn a_range_stays_within_what_is_there() {
        let partition = Partition { first: 10, next: 20, at_timestamp: Some(15), ..Partition::default() };
        let range = |from, to, from_timestamp_ms| {
            range_of(&Wanted { from, to, from_timestamp_ms, ..Wanted::default() }, &partition)
        };

        assert_eq!(range(None, None, None), (10, 20));
        assert_eq!(range(Some(3), Some(30), None), (10, 20));
        assert_eq!(range(Some(12), Some(14), None), (12, 14));
        assert_eq!(range(Some(14), Some(12), None), (14, 14));
        assert_eq!(range(Some(90), None, None), (20, 20));
        assert_eq!(range(None, None, Some(1)), (15, 20));
    }

    #[test]
    fn a_range_begins_in_the_archive_when_there_is_one() {
        let archived = Archived { first: 3, next: 12, message_count: Some(7), bytes: 70, at_timestamp: None };
        let live = Partition { first: 10, next: 20, message_count: 10, bytes: 100, ..Partition::default() };
        let with = |archive| Partition { archive: Some(archive), at_timestamp: Some(15), ..live.clone() };
        let from =
            |from_timestamp_ms, archive| range_of(&Wanted { from_timestamp_ms, ..Wanted::default() }, &with(archive)).0;

        assert_eq!(from(None, archived), 3);
        assert_eq!(from(Some(1), archived), 15);
        assert_eq!(from(Some(1), Archived { at_timestamp: Some(5), ..archived }), 5);
        assert_eq!(with(archived).totals(), Some((17, 170)));
        assert_eq!(with(Archived { message_count: None, ..archived }).totals(), None);
    }

    #[test]
    fn what_went_before_it_was_archived_lies_between_two_endpoints() {
        let there = |next, range| {
            let archive = Some(Archived { first: 3, next, ..Archived::default() });
            let partition = Partition { first: 10, next: 20, archive, ..Partition::default() };
            partition.there(range).collect::<Vec<_>>()
        };

        assert_eq!(there(10, (3, 20)), [(3, 20)]);
        assert_eq!(there(15, (3, 20)), [(3, 20)]);
        assert_eq!(there(7, (3, 20)), [(3, 7), (10, 20)]);
        assert_eq!(there(7, (5, 9)), [(5, 9)]);
        assert_eq!(there(7, (12, 20)), [(12, 20)]);
        assert_eq!(Partition { first: 10, next: 20, ..Partition::default() }.there((10, 20)).count(), 1);
    }
}
