//! Tickets, descriptors and commands of clients, as JSON that is easily written by hand. An unknown name is refused, so that
//! a misspelled one is not ignored.

use penstock_arrow::Filter;
use penstock_wire::grpc::publish::KEY_BYTES_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Status;

use penstock_engine::BATCH_MAX;

use super::protocol::{COMMAND, FlightDescriptor, PATH};

/// Far above what anybody counts to, and far below where counting on would end.
const SEQUENCE_MAX: u64 = 1 << 62;

/// Routing keys and the names of headers are short strings in AMQP.
const NAME_BYTES_MAX: usize = u8::MAX as usize;

/// A lease may be read in so many parts.
const PARTS_MAX: u32 = 4096;

/// What a ticket asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Range(Ticket),
    Lease(LeaseTicket),
}

impl Reading {
    pub fn parse(bytes: &[u8]) -> Result<Reading, Status> {
        let value: serde_json::Value = parse("a ticket", bytes)?;
        if value.get("queue").is_none() {
            return Ticket::parse(bytes).map(Reading::Range);
        }
        let ticket: LeaseTicket = parse("a ticket", bytes)?;
        if ticket.parts > PARTS_MAX {
            return Err(Status::invalid_argument(format!("`parts` is at most {PARTS_MAX}; ask for fewer")));
        }
        Ok(Reading::Lease(ticket))
    }

    pub fn columns(&self) -> Option<&[String]> {
        match self {
            Reading::Range(ticket) => ticket.columns.as_deref(),
            Reading::Lease(ticket) => ticket.columns.as_deref(),
        }
    }
}

/// One of so many parts of a lease; the first is 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseTicket {
    #[serde(default)]
    pub vhost: String,
    pub queue: String,
    pub owner: String,
    pub lease: u64,
    #[serde(default)]
    pub part: u32,
    #[serde(default = "whole")]
    pub parts: u32,
    pub columns: Option<Vec<String>>,
}

fn whole() -> u32 {
    1
}

/// A part of a partition: `from` is in it, `to` is not. Without `to` it ends where the partition ends when it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ticket {
    #[serde(default)]
    pub vhost: String,
    pub partition: String,
    #[serde(default)]
    pub from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_is: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key_is: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header_is: Option<HeaderIs>,
    /// Whether to go on behind files of the archive that cannot be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unreadable: bool,
}

/// A header that a row must have, with a value as in the column `headers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderIs {
    pub name: String,
    pub value: String,
}

impl Ticket {
    pub fn parse(bytes: &[u8]) -> Result<Ticket, Status> {
        let ticket: Ticket = parse("a ticket", bytes)?;
        let header = ticket.header_is.as_ref();
        let lengths = [
            ("key_is", ticket.key_is.as_ref(), KEY_BYTES_MAX),
            ("routing_key_is", ticket.routing_key_is.as_ref(), NAME_BYTES_MAX),
            ("header_is.name", header.map(|header| &header.name), NAME_BYTES_MAX),
            ("header_is.value", header.map(|header| &header.value), KEY_BYTES_MAX),
        ];
        let too_long = lengths.into_iter().find(|(_, text, most)| text.is_some_and(|text| text.len() > *most));
        if let Some((name, _, most)) = too_long {
            return Err(Status::invalid_argument(format!("`{name}` has at most {most} bytes")));
        }
        Ok(ticket)
    }

    /// The rows that it asks for.
    pub fn filter(&self) -> Filter {
        let bytes = |text: &String| text.clone().into_bytes();
        Filter {
            key: self.key_is.as_ref().map(bytes),
            routing_key: self.routing_key_is.as_ref().map(bytes),
            header: self.header_is.as_ref().map(|header| (bytes(&header.name), bytes(&header.value))),
        }
    }

    pub fn to_json(&self) -> Vec<u8> {
        // Text and numbers always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A stream or one partition, or a range of offsets or times of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    pub vhost: String,
    pub stream: String,
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub from_timestamp_ms: Option<u64>,
    pub columns: Option<Vec<String>>,
    pub endpoints_min: Option<u32>,
}

impl Wanted {
    pub fn of(descriptor: &FlightDescriptor) -> Result<Wanted, Status> {
        let wanted: Wanted = match named(descriptor)? {
            Named::Path { vhost, name } => Wanted { vhost, stream: name, ..Wanted::default() },
            Named::Command(command) => parse("the command of a descriptor", command)?,
        };
        if wanted.from.is_some() && wanted.from_timestamp_ms.is_some() {
            return Err(Status::invalid_argument(
                "`from` and `from_timestamp_ms` say the same thing; give one of them",
            ));
        }
        Ok(wanted)
    }
}

/// Where rows are published, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    #[serde(default)]
    pub vhost: String,
    /// A stream, or an exchange when there is no such stream; instead of `exchange`.
    pub stream: Option<String>,
    #[serde(default)]
    pub exchange: String,
    /// Of rows that have none of their own.
    #[serde(default)]
    pub routing_key: String,
    #[serde(default)]
    pub producer: String,
    /// The producer's sequence of the first row.
    pub sequence: Option<u64>,
    pub durability: Option<PutDurability>,
    /// Rows are staged under this name, for a batch, instead of published.
    pub stage: Option<String>,
    /// Of a stage, or of a producer that numbers batches: rows are counted from its first on.
    pub batch: Option<u64>,
    /// There are no rows: it is only checked that none are stored of the producer's batch.
    #[serde(default)]
    pub is_empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PutDurability {
    Os,
    Disk,
    Replicated,
}

impl Put {
    pub fn of(descriptor: &FlightDescriptor) -> Result<Put, Status> {
        let put: Put = match named(descriptor)? {
            Named::Path { vhost, name } => Put { vhost, stream: Some(name), ..Put::default() },
            Named::Command(command) => parse("the command of a descriptor", command)?,
        };
        if put.stream.is_some() && !(put.exchange.is_empty() && put.routing_key.is_empty()) {
            return Err(Status::invalid_argument(
                "`stream` says where rows go; leave `exchange` and `routing_key` out",
            ));
        }
        put.check_batch()?;
        if put.stage.is_some() && !(put.producer.is_empty() && put.sequence.is_none() && put.durability.is_none()) {
            return Err(Status::invalid_argument(
                "staged rows are numbered by the stage and are always on the disk; leave `producer`, `sequence` and `durability` out",
            ));
        }
        match (put.producer.is_empty(), put.sequence) {
            (false, None) if put.batch.is_some() => Ok(put),
            (true, Some(_)) => Err(Status::invalid_argument("`sequence` is about a producer; name one in `producer`")),
            (false, None | Some(0)) => Err(Status::invalid_argument(
                "a producer's rows have sequences; give the first one's in `sequence`, from 1",
            )),
            (false, Some(sequence)) if sequence > SEQUENCE_MAX => {
                Err(Status::invalid_argument(format!("`sequence` is at most {SEQUENCE_MAX}")))
            }
            _ => Ok(put),
        }
    }

    fn check_batch(&self) -> Result<(), Status> {
        let is_of_producer = self.stage.is_none() && !self.producer.is_empty();
        let refused = match self.batch {
            None if self.stage.is_some() => "a stage's rows belong to a batch; give its number in `batch`",
            None if self.is_empty => "`is_empty` is about a producer's batch; give its number in `batch`",
            Some(_) if self.stage.is_none() && !is_of_producer => {
                "`batch` is about a stage or a producer; name one in `stage` or in `producer`"
            }
            Some(_) if is_of_producer && self.sequence.is_some() => {
                "a producer's rows have sequences or the number of their batch; give only one of `sequence` and `batch`"
            }
            Some(batch) if is_of_producer && batch > u64::from(BATCH_MAX) => {
                return Err(Status::invalid_argument(format!("`batch` of a producer is at most {BATCH_MAX}")));
            }
            Some(_) if self.is_empty && !is_of_producer => "`is_empty` is about a producer's batch; leave it out",
            _ => return Ok(()),
        };
        Err(Status::invalid_argument(refused))
    }
}

/// Names of producers whose job is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ending {
    #[serde(default)]
    pub vhost: String,
    pub producers: Vec<String>,
}

impl Ending {
    pub fn parse(body: &[u8]) -> Result<Ending, Status> {
        parse("the body of EndProducers", body)
    }
}

/// Which virtual hosts' streams are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listing {
    #[serde(default)]
    pub vhost: String,
}

impl Listing {
    pub fn parse(expression: &[u8]) -> Result<Listing, Status> {
        if expression.is_empty() {
            return Ok(Listing::default());
        }
        parse("the criteria", expression)
    }
}

enum Named<'a> {
    Path { vhost: String, name: String },
    Command(&'a [u8]),
}

fn named(descriptor: &FlightDescriptor) -> Result<Named<'_>, Status> {
    match (descriptor.kind, descriptor.path.as_slice()) {
        (PATH, [name]) => Ok(Named::Path { vhost: String::new(), name: name.clone() }),
        (PATH, [vhost, name]) => Ok(Named::Path { vhost: vhost.clone(), name: name.clone() }),
        (COMMAND, _) => Ok(Named::Command(&descriptor.command)),
        _ => Err(Status::invalid_argument(
            "a descriptor is a path of [name] or [vhost, name], or a command in JSON such as {\"stream\": \"events\"}",
        )),
    }
}

pub(super) fn parse<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Status> {
    serde_json::from_slice(bytes)
        .map_err(|error| Status::invalid_argument(format!("{what} is a JSON object of known names: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{COMMAND, FlightDescriptor, PATH, Put, PutDurability, Reading, Ticket, Wanted};

    fn command(json: &'static str) -> FlightDescriptor {
        FlightDescriptor { kind: COMMAND, command: json.as_bytes().into(), path: Vec::new() }
    }

    fn path(names: &[&str]) -> FlightDescriptor {
        let path = names.iter().map(|name| (*name).to_owned()).collect();
        FlightDescriptor { kind: PATH, path, ..FlightDescriptor::default() }
    }

    #[test]
    fn a_ticket_is_short_and_what_it_leaves_out_is_everything() {
        let ticket = Ticket::parse(br#"{"partition": "events"}"#).unwrap();

        assert_eq!(ticket, Ticket { partition: "events".to_owned(), ..Ticket::default() });
        assert_eq!(Ticket::parse(&ticket.to_json()).unwrap(), ticket);
    }

    #[test]
    fn a_ticket_names_the_rows_that_it_asks_for_within_bounds() {
        let parsed = Ticket::parse(br#"{"partition": "e", "key_is": "k", "header_is": {"name": "a", "value": "x"}}"#);
        let filter = parsed.unwrap().filter();

        assert_eq!((filter.key.as_deref(), filter.routing_key), (Some(&b"k"[..]), None));
        assert_eq!(filter.header, Some((b"a".into(), b"x".into())));
        assert!(Ticket::parse(br#"{"partition": "e"}"#).unwrap().filter().takes_all());
        for wrong in [
            format!(r#"{{"partition": "e", "key_is": "{}"}}"#, "k".repeat(65_536)),
            format!(r#"{{"partition": "e", "routing_key_is": "{}"}}"#, "k".repeat(256)),
            r#"{"partition": "e", "header_is": {"name": "a"}}"#.to_owned(),
            r#"{"partition": "e", "header_is": {"name": "a", "value": "x", "like": "y"}}"#.to_owned(),
            r#"{"queue": "q", "owner": "o", "lease": 1, "key_is": "k"}"#.to_owned(),
        ] {
            assert!(Reading::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ticket_with_a_queue_is_about_a_lease() {
        let Reading::Lease(ticket) = Reading::parse(br#"{"queue": "orders", "owner": "o", "lease": 7}"#).unwrap()
        else {
            panic!("it names a queue");
        };
        assert_eq!((ticket.owner.as_str(), ticket.lease, ticket.part, ticket.parts), ("o", 7, 0, 1));
        assert!(matches!(Reading::parse(br#"{"partition": "events"}"#).unwrap(), Reading::Range(_)));

        for wrong in [
            r#"{"queue": "orders", "owner": "o"}"#,
            r#"{"queue": "orders", "owner": "o", "lease": -1}"#,
            r#"{"queue": "orders", "owner": "o", "lease": 1, "partition": "orders"}"#,
            r#"{"queue": "orders", "owner": "o", "lease": 1, "parts": 5000}"#,
        ] {
            assert!(Reading::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_that_nobody_knows_are_refused() {
        assert!(Ticket::parse(br#"{"partition": "events", "until": 7}"#).unwrap_err().message().contains("until"));
        assert!(Ticket::parse(b"events").is_err());
        assert!(Wanted::of(&command(r#"{"streams": "a"}"#)).is_err());
    }

    #[test]
    fn a_path_names_a_stream_and_perhaps_its_vhost() {
        let wanted = Wanted::of(&path(&["prod", "events"])).unwrap();

        assert_eq!((wanted.vhost.as_str(), wanted.stream.as_str()), ("prod", "events"));
        assert!(Wanted::of(&path(&[])).is_err());
        assert!(Wanted::of(&FlightDescriptor::default()).is_err());
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let put = |json: &'static str| Put::of(&command(json));

        assert_eq!(put(r#"{"stream": "a", "durability": "disk"}"#).unwrap().durability, Some(PutDurability::Disk));
        assert!(put(r#"{"stream": "a", "exchange": "b"}"#).is_err());
        assert!(put(r#"{"stream": "a", "sequence": 1}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p"}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p", "sequence": 0}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p", "sequence": 1}"#).is_ok());
        assert!(put(r#"{"stream": "a", "stage": "s"}"#).is_err());
        assert!(put(r#"{"stream": "a", "stage": "s", "batch": 0, "durability": "os"}"#).is_err());
        assert_eq!(put(r#"{"stream": "a", "stage": "s", "batch": 0}"#).unwrap().batch, Some(0));
        assert_eq!(put(r#"{"stream": "a", "producer": "p", "batch": 0}"#).unwrap().batch, Some(0));
        assert!(put(r#"{"stream": "a", "producer": "p", "batch": 0, "is_empty": true}"#).unwrap().is_empty);
        assert!(put(r#"{"stream": "a", "batch": 0}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p", "batch": 0, "sequence": 1}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p", "batch": 1073741823}"#).is_err());
        assert!(put(r#"{"stream": "a", "producer": "p", "sequence": 1, "is_empty": true}"#).is_err());
        assert!(put(r#"{"stream": "a", "stage": "s", "batch": 0, "is_empty": true}"#).is_err());
        let both = command(r#"{"stream": "a", "from": 1, "from_timestamp_ms": 1}"#);
        assert!(Wanted::of(&both).is_err());
    }
}
