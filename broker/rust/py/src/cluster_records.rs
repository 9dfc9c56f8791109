//! The rows of the cluster: the record of a shard, the part of a replica in it, and what a node reports.

use penstock_cluster::{Entry, Identity, Progress, Question, QuestionKind, Report, Standing};
use penstock_replica::{Halt, Leader, ReplicaId, Role};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::records::{Secret, records};

records! {
    PeerTls { authority: String, certificate: String, key: Secret<String>, server_name: Option<String> = None }
    ReplicaHolder { replica: String, broker: u64 }
    ShardState {
        epoch: u64,
        leader: u64,
        leader_replica: String,
        leader_boot: u64,
        in_sync: Vec<String>,
        replicas: Vec<ReplicaHolder>,
        min_in_sync: usize,
    }
    HeardLeader { epoch: u64, broker: u64 }
    ReplicaRole {
        epoch: Option<u64> = None,
        appends: bool = false,
        delivers: bool = false,
        halted: Option<String> = None,
        halt: Option<String> = None,
        follows: Option<HeardLeader> = None,
    }
    ReplicaStanding { role: ReplicaRole, committed: u64, end: u64, promised: u64 = 0, log_epoch: u64 = 0 }
    ReplicaIdentity { replica: String, promised: u64 }
    ReplicaPosition { replica: String, position: u64 }
    ShardProgress { epoch: u64, end: u64, committed: u64, acknowledged: Vec<ReplicaPosition> }
    LogEntry { until: u64, content: Option<Vec<u8>> = None }
    RoleChanged { shard: Vec<u8>, role: ReplicaRole }
    RecordsCommitted { shard: Vec<u8>, below: u64 }
    AppendEnded { shard: Vec<u8>, token: u64, is_committed: bool }
    ReplicaFailed { shard: Vec<u8>, reason: String }
    LogReplaced { shard: Vec<u8> }
    NodeNotice { text: String }
    PeerChanged { broker: u64, is_connected: bool }
    RelayOrigin { broker: u64, connection: u64 }
    PeerMessage { broker: u64, shard: Vec<u8>, content: Vec<u8> }
    ReadAsked { shard: Vec<u8>, read: u64 }
    ChangeAsked { shard: Vec<u8>, change: u64, base: u64, record: ShardState }
}

/// Anything that a node reports.
pub(crate) enum NodeEvent {
    Role(RoleChanged),
    Committed(RecordsCommitted),
    Ended(AppendEnded),
    Failed(ReplicaFailed),
    Replaced(LogReplaced),
    Notice(NodeNotice),
    Peer(PeerChanged),
    Message(PeerMessage),
    Read(ReadAsked),
    Change(ChangeAsked),
}

impl NodeEvent {
    pub(crate) fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Role(event) => event.into_py_any(py),
            Self::Committed(event) => event.into_py_any(py),
            Self::Ended(event) => event.into_py_any(py),
            Self::Failed(event) => event.into_py_any(py),
            Self::Replaced(event) => event.into_py_any(py),
            Self::Notice(event) => event.into_py_any(py),
            Self::Peer(event) => event.into_py_any(py),
            Self::Message(event) => event.into_py_any(py),
            Self::Read(event) => event.into_py_any(py),
            Self::Change(event) => event.into_py_any(py),
        }
    }
}

impl From<Report<NodeEvent>> for NodeEvent {
    fn from(report: Report<NodeEvent>) -> NodeEvent {
        match report {
            Report::Committed { shard, below } => {
                NodeEvent::Committed(RecordsCommitted { shard: shard.to_vec(), below: below.0 })
            }
            Report::Received { from, shard, content } => {
                NodeEvent::Message(PeerMessage { broker: from, shard: shard.to_vec(), content })
            }
            Report::Other(event) => event,
        }
    }
}

impl From<Question> for NodeEvent {
    fn from(question: Question) -> NodeEvent {
        let shard = question.shard.to_vec();
        match question.kind {
            QuestionKind::Read(read) => NodeEvent::Read(ReadAsked { shard, read }),
            QuestionKind::Change { change, base, record } => {
                NodeEvent::Change(ChangeAsked { shard, change, base: base.0, record: record.into() })
            }
        }
    }
}

impl From<Role> for ReplicaRole {
    fn from(role: Role) -> ReplicaRole {
        let follower =
            ReplicaRole { epoch: None, appends: false, delivers: false, halted: None, halt: None, follows: None };
        match role {
            Role::Follower { of } => {
                let follows = of.map(|heard| HeardLeader { epoch: heard.epoch, broker: heard.leader });
                ReplicaRole { follows, ..follower }
            }
            Role::Leader { epoch, appends, delivers } => {
                ReplicaRole { epoch: Some(epoch), appends, delivers, ..follower }
            }
            Role::Halted(why) => {
                let (halt, reason) = reason_of(why);
                ReplicaRole { halted: Some(reason.to_owned()), halt: Some(halt.to_owned()), ..follower }
            }
        }
    }
}

/// The name of a reason, for programs, and the reason.
fn reason_of(halt: Halt) -> (&'static str, &'static str) {
    match halt {
        Halt::CoordinatorWentBack => {
            ("coordinator", "the coordinator has an older record of the shard than this replica has seen")
        }
        Halt::CommittedWouldBeCut => ("committed", "the leader does not have records that are committed"),
        Halt::DiskFailed => ("disk", "the disk failed"),
    }
}

impl From<Standing> for ReplicaStanding {
    fn from(standing: Standing) -> ReplicaStanding {
        let Standing { role, committed, end, promised, log_epoch } = standing;
        ReplicaStanding { role: role.into(), committed: committed.0, end: end.0, promised, log_epoch }
    }
}

impl From<Identity> for ReplicaIdentity {
    fn from(identity: Identity) -> ReplicaIdentity {
        ReplicaIdentity { replica: text_of(identity.replica), promised: identity.promised }
    }
}

impl From<Progress> for ShardProgress {
    fn from(progress: Progress) -> ShardProgress {
        let Progress { epoch, end, committed, acknowledged } = progress;
        let acknowledged = acknowledged.into_iter();
        let acknowledged = acknowledged
            .map(|(replica, position)| ReplicaPosition { replica: text_of(replica), position: position.0 })
            .collect();
        ShardProgress { epoch, end: end.0, committed: committed.0, acknowledged }
    }
}

impl From<Entry> for LogEntry {
    fn from(entry: Entry) -> LogEntry {
        LogEntry { until: entry.until.0, content: entry.content }
    }
}

impl From<penstock_replica::ShardRecord> for ShardState {
    fn from(record: penstock_replica::ShardRecord) -> ShardState {
        let penstock_replica::ShardRecord { epoch, leader, in_sync, replicas, min_in_sync } = record;
        ShardState {
            epoch,
            leader: leader.broker,
            leader_replica: text_of(leader.replica),
            leader_boot: leader.boot,
            in_sync: in_sync.into_iter().map(text_of).collect(),
            replicas: replicas
                .into_iter()
                .map(|(replica, broker)| ReplicaHolder { replica: text_of(replica), broker })
                .collect(),
            min_in_sync,
        }
    }
}

impl TryFrom<ShardState> for penstock_replica::ShardRecord {
    type Error = PyErr;

    fn try_from(state: ShardState) -> PyResult<penstock_replica::ShardRecord> {
        let replicas = state.replicas.iter().map(|holder| Ok((replica_of(&holder.replica)?, holder.broker)));
        Ok(penstock_replica::ShardRecord {
            epoch: state.epoch,
            leader: Leader {
                broker: state.leader,
                replica: replica_of(&state.leader_replica)?,
                boot: state.leader_boot,
            },
            in_sync: state.in_sync.iter().map(|replica| replica_of(replica)).collect::<PyResult<_>>()?,
            replicas: replicas.collect::<PyResult<_>>()?,
            min_in_sync: state.min_in_sync,
        })
    }
}

/// A replica's id as the coordinator stores it.
pub(crate) fn text_of(replica: ReplicaId) -> String {
    format!("{replica:032x}")
}

pub(crate) fn replica_of(text: &str) -> PyResult<ReplicaId> {
    u128::from_str_radix(text, 16)
        .map_err(|_| PyValueError::new_err(format!("replica '{text}' does not have 32 hexadecimal digits")))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_records(module)
}

pub(crate) fn id_of(kind: &str, bytes: Vec<u8>) -> PyResult<[u8; 16]> {
    bytes.try_into().map_err(|_| PyValueError::new_err(format!("the id of a {kind} has 16 bytes")))
}
