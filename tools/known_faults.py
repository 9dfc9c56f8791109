"""Faults that earlier versions had, each as the edit that puts it back and the command that must fail then.

Add one with every fixed fault that could come back unseen. `old` stands exactly once in the file; when a change removes
it, the fault is put back in another way or goes from here. `{python}` is the Python that runs the tool.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`command` passes without the edit and fails with it."""

    name: str
    file: str
    old: str
    new: str
    command: str


BACKUP = "cargo test --locked --quiet -p penstock-log --test backup"
# `make test-crash` runs these.
DAMAGE = "cargo test --locked --quiet -p penstock-log --test damage"
FAULTY_DISK = "cargo test --locked --quiet -p penstock-log --test faults"
BAD_SECTORS = "cargo test --locked --quiet -p penstock-log --test bad_sectors"
INDEX_FILES = "cargo test --locked --quiet -p penstock-log --test index_files"
GONE = "cargo test --locked --quiet -p penstock-log --test gone_segments"
REPLAY = "cargo test --locked --quiet -p penstock-log --test replay"

FAULTS = (
    Fault(
        "a backup stops folds",
        "broker/rust/log/src/log/upkeep.rs",
        "        let newest = self.sealed.len().checked_sub(1)?;\n",
        "        if self.holds.is_held() {\n            return None;\n        }\n"
        "        let newest = self.sealed.len().checked_sub(1)?;\n",
        BACKUP,
    ),
    Fault(
        "a fold removes checkpoints that a backup needs",
        "broker/rust/log/src/checkpoint.rs",
        "holds.remove(disk, &checkpoint_path(directory, oldest), false)?;",
        "let _ = holds;\n            unlink_if_there(disk, &checkpoint_path(directory, oldest))?;",
        BACKUP,
    ),
    Fault(
        "a fold removes segments that a backup needs",
        "broker/rust/log/src/backup.rs",
        "if held.needed.contains_key(path) {",
        'if held.needed.contains_key(path) && path.to_string_lossy().contains("checkpoint") {',
        BACKUP,
    ),
    Fault(
        "a backup keeps segments that it does not need",
        "broker/rust/log/src/backup.rs",
        "if held.needed.contains_key(path) {",
        "if held.copies > 0 {",
        BACKUP,
    ),
    Fault(
        "a backup is made of hard links",
        "broker/rust/log/src/backup.rs",
        "let copy = OpenOptions::new().write(true).create_new(true).open(to);",
        "let copy = std::fs::hard_link(from.1, to).and_then(|()| OpenOptions::new().write(true).open(to));",
        BACKUP,
    ),
    Fault(
        "a backup takes the room that drains the log",
        "broker/rust/log/src/backup.rs",
        "if free < self.room_needed.saturating_add(bytes) {",
        "if free < bytes {",
        BACKUP,
    ),
    Fault(
        "a start does not know of the last sync",
        "broker/rust/log/src/sync.rs",
        "        save_position(&self.synced_file, self.disk.as_ref(), self.position)?;\n",
        "",
        DAMAGE,
    ),
    Fault(
        "corruption in the newest segment is called a torn tail",
        "broker/rust/log/src/recovery.rs",
        "(is_owed || self.keeps_order || is_bad) && walk.resume()",
        "(is_owed || is_bad) && walk.resume()",
        DAMAGE,
    ),
    Fault(
        "a start trusts the pages of a sync that failed",
        "broker/rust/log/src/recovery.rs",
        "            write_again(self.disk, &segment, &header, &contents)?;\n",
        "            let _ = (write_again, &header);\n"
        '            let io = |error| LogError::io("sync", segment.path(), error);\n'
        "            self.disk.open(segment.path()).and_then(|file| self.disk.sync(&file)).map_err(io)?;\n",
        FAULTY_DISK,
    ),
    Fault(
        "a segment that cannot be begun removes another one",
        "broker/rust/log/src/active.rs",
        "if error.kind() != ErrorKind::AlreadyExists {",
        "if error.kind() != ErrorKind::NotFound {",
        FAULTY_DISK,
    ),
    Fault(
        "an index file is touched where it cannot be read",
        "broker/rust/log/src/directory.rs",
        "if map.is_resident(from, length) {",
        "if from < usize::MAX {",
        INDEX_FILES,
    ),
    Fault(
        "a bad sector stops a start",
        "broker/rust/log/src/contents.rs",
        "                Err(error) if is_bad_sector(&error) => {\n                    for",
        "                Err(error) if is_bad_sector(&error) && part.is_empty() => {\n                    for",
        BAD_SECTORS,
    ),
    Fault(
        "a bad sector ends what a start reads of its segment",
        "broker/rust/log/src/recovery.rs",
        "let is_bad = contents.is_bad(at, contents.claimed_end(at));\n                    let goes_on = "
        "(is_owed || self.keeps_order || is_bad) && walk.resume();",
        "let is_bad = contents.is_bad(at, contents.claimed_end(at));\n                    let goes_on = "
        "(is_owed || self.keeps_order) && !is_bad && walk.resume();",
        BAD_SECTORS,
    ),
    Fault(
        "a bad sector stops a fold",
        "broker/rust/log/src/fold_ticket.rs",
        "Err(LogError::Damaged { why: Damage::Unreadable, .. }) => advance_in_file",
        "Err(LogError::Damaged { why: Damage::Short, .. }) => advance_in_file",
        BAD_SECTORS,
    ),
    Fault(
        "a newest segment without a header is removed or set aside",
        "broker/rust/log/src/recovery.rs",
        "if is_owed || (written > 0 && !was_lost_by_power) {",
        "let _ = was_lost_by_power;\n        if is_owed {",
        DAMAGE,
    ),
    Fault(
        "the copy of a header is not read",
        "broker/rust/log/src/header.rs",
        ".filter(|&at| at >= SEGMENT_HEADER_BYTES);",
        ".filter(|&at| at == u64::MAX);",
        DAMAGE,
    ),
    Fault(
        "a start does not miss a segment",
        "broker/rust/log/src/live_segments.rs",
        "    if gone.is_empty() {\n",
        "    if gone.len() < usize::MAX {\n",
        GONE,
    ),
    Fault(
        "a start removes live segments that an old manifest does not name",
        "broker/rust/log/src/recovery.rs",
        "if !is_owed(self.directory, live, manifest, (number, edition)) {",
        "if !is_owed(self.directory, live, manifest, (number, 0)) {",
        GONE,
    ),
    Fault(
        "a message of several records names its producer in the first",
        "broker/rust/log/src/log.rs",
        "let payload = if place == last {",
        "let payload = if place == 0 {",
        REPLAY,
    ),
    Fault(
        "a checkpoint forgets named producers",
        "broker/rust/log/src/checkpoint.rs",
        "let mut producers: Vec<_> = state.producers.iter().collect();",
        "let mut producers: Vec<_> = state.producers.iter().map(|(id, _)| (id, &0_u64)).collect();",
        REPLAY,
    ),
    Fault(
        "a checkpoint forgets how far messages went out",
        "broker/rust/log/src/checkpoint.rs",
        "for ((owner, key), value) in &state.marks {",
        "for ((owner, key), value) in &state.marks {\n"
        "        let value: &[u8] = if owner.first() == Some(&b'd') { &[] } else { value };",
        REPLAY,
    ),
    Fault(
        "a deleted queue keeps the mark of its deliveries",
        "broker/rust/log/src/marks.rs",
        "let owners = [owner_of_groups, owner_of_leases, owner_of_stage, owner_of_deliveries];",
        "let owners = [owner_of_groups, owner_of_leases, owner_of_stage];",
        REPLAY,
    ),
    Fault(
        "a start takes the header of an earlier segment in reused space for a segment's own",
        "broker/rust/log/src/recovery.rs",
        "before.is_none_or(|before| (header.epoch, header.first) > (before.header.epoch, before.header.first))",
        "before.is_none_or(|before| header.log_id == before.header.log_id)",
        "cargo test --locked --quiet -p penstock-log --test reused_space",
    ),
    Fault(
        "a start removes what a manifest replaces that is not on the disk",
        "broker/rust/log/src/recovery.rs",
        "        if !replaced.is_empty() {\n",
        "        if replaced.len() == usize::MAX {\n",
        "cargo test --locked --quiet -p penstock-log --test interrupted_starts",
    ),
)
