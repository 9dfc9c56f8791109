"""Known faults of earlier versions, each as the edit that puts it back and the command that must fail then.

Add each fixed fault that could come back unnoticed. `old` occurs exactly once in the file; when a change removes it,
put the fault back in another way or delete it here. `{python}` is the Python that runs the tool.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault; `command` passes without the edit and fails with it."""

    name: str
    file: str
    old: str
    new: str
    command: str


# `make test-crash` runs these.
LOG = "cargo test --locked --quiet -p penstock-log --test"
ENGINE = "cargo test --locked --quiet -p penstock-engine --test"
BACKUP = f"{LOG} backup"
CORRUPTION = f"{LOG} corruption"
FAULTY_DISK = f"{LOG} faults"
BAD_SECTORS = f"{LOG} bad_sectors"
INDEX_FILES = f"{LOG} index_files"
GONE = f"{LOG} gone_segments"
RETURNED = f"{LOG} returned_segments"
REPLAY = f"{LOG} replay"
CUT = f"{LOG} cut_replay"
REPLICAS = f"{LOG} replicas"
PRODUCERS = f"{ENGINE} producers"
SIMULATION = "cargo test --release --locked --quiet -p penstock-replica --test simulation"
FULL_STARTS = f"{ENGINE} full_disk_starts"
PYTEST = "{python} -m pytest -x"
BACKUP_FILES = f"{PYTEST} tests/unit/storage/test_backup.py"
POWER = f"{PYTEST} tests/unit/node/test_power_failures.py"
REFUSED = f"{PYTEST} tests/broker/test_refused_starts.py"
NUMBERS = f"{REFUSED}::test_a_start_that_fails_after_a_power_failure_does_not_let_numbers_repeat"
DEFINITIONS = f"{REFUSED}::test_definitions_that_are_not_whole_cost_no_message"
LOST_LOG = f"{REFUSED}::test_a_log_that_vanished_is_not_begun_anew[log]"
LOST_PROOF = f"{REFUSED}::test_a_lost_proof_refuses_the_start_until_somebody_accepts_what_is_there"
OWN_LOGS = f"{ENGINE} dedicated"
OWNER = f"{PYTEST} tests/unit/vhost/test_owner.py"
SETTINGS = f"{PYTEST} tests/unit/node/test_vhosts_storage.py"
DELETIONS = f"{PYTEST} tests/unit/node/test_deletions.py"
COMMITS = f"{PYTEST} tests/unit/vhost/test_owner_commits.py"

FAULTS = (
    Fault(
        "a backup stops folds",
        "broker/rust/log/src/log/upkeep.rs",
        "        let newest = sealed.len().checked_sub(1)?;\n",
        "        if self.holds.is_held() {\n            return None;\n        }\n"
        "        let newest = sealed.len().checked_sub(1)?;\n",
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
        "let copy = std::fs::hard_link(from.path, to).and_then(|()| OpenOptions::new().write(true).open(to));",
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
        "            file.save(self.disk.as_ref(), self.progress)?;\n",
        "",
        CORRUPTION,
    ),
    Fault(
        "corruption in the newest segment is called a torn tail",
        "broker/rust/log/src/recovery.rs",
        "(is_owed || self.keeps_order || is_bad) && walk.resume(to)",
        "(is_owed || is_bad) && walk.resume(to)",
        CORRUPTION,
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
        "        Err(error) if is_bad_sector(&error) => {\n            for",
        "        Err(error) if is_bad_sector(&error) && part.is_empty() => {\n            for",
        BAD_SECTORS,
    ),
    Fault(
        "a bad sector ends what a start reads of its segment",
        "broker/rust/log/src/recovery.rs",
        "let goes_on = (is_owed || self.keeps_order || is_bad) && walk.resume(to);",
        "let goes_on = (is_owed || self.keeps_order) && !is_bad && walk.resume(to);",
        BAD_SECTORS,
    ),
    Fault(
        "a bad sector stops a fold",
        "broker/rust/log/src/fold_ticket.rs",
        "Err(LogError::Corrupt { why: Corruption::Unreadable, .. }) => advance_in_file",
        "Err(LogError::Corrupt { why: Corruption::Short, .. }) => advance_in_file",
        BAD_SECTORS,
    ),
    Fault(
        "a newest segment without a header is removed or set aside",
        "broker/rust/log/src/recovery/headers.rs",
        "if is_owed || (written > 0 && !was_lost_by_power) {",
        "let _ = was_lost_by_power;\n        if is_owed {",
        CORRUPTION,
    ),
    Fault(
        "the copy of a header is not read",
        "broker/rust/log/src/header.rs",
        ".filter(|&at| at >= SEGMENT_HEADER_BYTES);",
        ".filter(|&at| at == u64::MAX);",
        CORRUPTION,
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
        "let leftovers = unnamed.iter().filter(|one| !is_missed(one))",
        "let leftovers = unnamed.iter().filter(|one| is_missed(one) || one.number > 0)",
        GONE,
    ),
    Fault(
        "a segment that comes back after the log went on without it is removed",
        "broker/rust/log/src/recovery.rs",
        "self.lost_before.iter().any(|lost| lost.contains(&segment.number()))",
        "self.lost_before.iter().any(|lost| lost.is_empty())",
        RETURNED,
    ),
    Fault(
        "a live segment is removed for want of an index file",
        "broker/rust/log/src/recovery/headers.rs",
        "is_listed || directory_path",
        "(is_listed && number == 0) || directory_path",
        f"{LOG} lost_headers",
    ),
    Fault(
        "a backup leaves out segments that cannot be served",
        "broker/rust/log/src/backup.rs",
        "for segment in &self.unserved {",
        "for segment in self.unserved.iter().skip(usize::MAX) {",
        f"{LOG} corrupt_backup",
    ),
    Fault(
        "a start hands out skipped numbers before the skip is on the disk",
        "broker/rust/log/src/log.rs",
        "log.settle_start(raises > 0 || is_new)?;",
        "log.settle_start(is_new)?;",
        REPLAY,
    ),
    Fault(
        "a start writes its boot down before it reads anything",
        "broker/penstock/storage/directory.py",
        "            return cls(path, lock, _boot_id(boot_id_file), _read_node(path / NODE))\n",
        "            opened = cls(path, lock, _boot_id(boot_id_file), _read_node(path / NODE))\n"
        '            node = {"boot_id": opened._boot_id, "data_id": opened.data_id, "files": sorted(opened._files)}\n'
        "            write_json(path / NODE, node)\n"
        "            return opened\n",
        f"{NUMBERS}[certificate]",
    ),
    Fault(
        "a start writes its boot down before its logs are open",
        "broker/penstock/node/launcher.py",
        "        await vhosts.open_all()\n",
        "        await asyncio.to_thread(directory.begin, [])\n        await vhosts.open_all()\n",
        f"{NUMBERS}[log]",
    ),
    Fault(
        "a restored backup is taken for the last run of this boot",
        "broker/penstock/storage/filled.py",
        '"boot_id": "",',
        '"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),',
        BACKUP_FILES,
    ),
    Fault(
        "missing definitions are made anew",
        "broker/penstock/storage/vhost_files.py",
        "    if not is_proven and not definitions.exists() and not proof_path(definitions).exists() "
        "and not _has_log(path):\n",
        "    if not definitions.exists():\n",
        f"{DEFINITIONS}[missing]",
    ),
    Fault(
        "a log that vanished is begun anew",
        "broker/penstock/storage/vhost_files.py",
        '    if is_proven and not any(_OF_A_LOG.fullmatch(found.name) for found in path.glob("*")):\n',
        '    if is_proven and not any(path.glob("*")):\n',
        LOST_LOG,
    ),
    Fault(
        "definitions that lost their end are accepted",
        "broker/penstock/storage/definitions_proof.py",
        "        return self.length <= len(content) and google_crc32c",
        "        return self.length > len(content) or google_crc32c",
        f"{DEFINITIONS}[cut]",
    ),
    Fault(
        "definitions with a flipped bit are accepted",
        "broker/penstock/storage/definitions_proof.py",
        "        return self.length <= len(content) and google_crc32c.value(content[: self.length]) == self.crc\n",
        "        return self.length <= len(content)\n",
        f"{DEFINITIONS}[flipped]",
    ),
    Fault(
        "definitions without their proof are accepted",
        "broker/penstock/storage/definitions_amqp.py",
        "        if is_proven:\n            raise _missing(proof_path(path)) from None\n",
        "",
        LOST_PROOF,
    ),
    Fault(
        "definitions are proven before they are on the disk",
        "broker/penstock/storage/definitions_amqp.py",
        "        try:\n            os.fdatasync(self._descriptor)\n        except OSError as error:\n"
        "            raise self._taken_back(end, error) from error\n",
        "",
        POWER,
    ),
    Fault(
        "each record of a message for very many queues has its producer's sequence",
        "broker/rust/log/src/log.rs",
        "let payload = if place == last { *payload } else",
        "let payload = if place <= last { *payload } else",
        PRODUCERS,
    ),
    Fault(
        "only the first record of a message for very many queues has its producer's sequence",
        "broker/rust/log/src/log.rs",
        "let payload = if place == last { *payload } else",
        "let payload = if place == 0 { *payload } else",
        PRODUCERS,
    ),
    Fault(
        "no record of a message for very many queues has its producer's sequence",
        "broker/rust/log/src/log.rs",
        "let payload = if place == last { *payload } else",
        "let payload = if place > last { *payload } else",
        PRODUCERS,
    ),
    Fault(
        "each log takes a whole segment at a start",
        "broker/rust/log/src/log.rs",
        "let size = Size::bare(bytes, least);",
        "let size = Size::stepped(bytes.max(least));",
        FULL_STARTS,
    ),
    Fault(
        "a log that was emptied takes the next segment's room at once",
        "broker/rust/log/src/log/room.rs",
        "self.begin_segment(first, self.smallest(self.options.segment_bytes_min, SEGMENT_HEADER_BYTES))?;",
        "self.begin_segment(first, Size::stepped(self.next_segment_bytes().max(SEGMENT_HEADER_BYTES)))?;",
        FULL_STARTS,
    ),
    Fault(
        "what is kept free does not grow with the logs on the disk",
        "broker/rust/log/src/kept.rs",
        "self.kept.0.load(Ordering::Relaxed)",
        "self.bytes",
        FULL_STARTS,
    ),
    Fault(
        "every file that is gone tells of all missing messages",
        "broker/rust/log/src/live_segments.rs",
        "messages: std::mem::take(&mut untold), files",
        "messages: std::mem::replace(&mut untold, messages), files",
        GONE,
    ),
    Fault(
        "a close does not sync the names of what it removed",
        "broker/rust/log/src/log/closing.rs",
        "let names_synced = self.options.disk.sync_directory(&self.directory);",
        "let names_synced: std::io::Result<()> = Ok(());",
        REPLAY,
    ),
    Fault(
        "index files without a segment stay",
        "broker/rust/log/src/orphans.rs",
        "    for index in &names.indexes {",
        "    for index in names.indexes.iter().take(0) {",
        INDEX_FILES,
    ),
    Fault(
        "the folder of a log of its own is not synced when it is there already",
        "broker/rust/engine/src/dedicated.rs",
        "        _ => sync_names(opener, parent),",
        "        Err(_) => Ok(()),\n        Ok(()) => sync_names(opener, parent),",
        OWN_LOGS,
    ),
    Fault(
        "a queue stays shut when its deletion was not written",
        "broker/penstock/vhost/batches.py",
        "                        self._shard.reopen_queue(change.id)\n",
        "                        pass\n",
        OWNER,
    ),
    Fault(
        "a queue of the same round is deleted without being shut",
        "broker/penstock/vhost/batches.py",
        "self._applied(batch, work.name) is None:\n",
        "self._applied(batch, work.name) is None and False:\n",
        OWNER,
    ),
    Fault(
        "a deletion begins before it is recorded",
        "broker/penstock/storage/deletions_json.py",
        "            try:\n                write_deletions(self._path, begun)\n",
        "            try:\n                pass\n",
        DELETIONS,
    ),
    Fault(
        "a start does not delete the permissions in a vhost",
        "broker/penstock/storage/deletions.py",
        "    if left != users:\n",
        "    if False:\n",
        DELETIONS,
    ),
    Fault(
        "a batch that was not written is committed",
        "broker/penstock/vhost/owner.py",
        "        except (NotWrittenError, DiskFullError):\n            await self._drop(batch)\n",
        "        except (NotWrittenError, DiskFullError):\n            batch.topology.commit()\n",
        COMMITS,
    ),
    Fault(
        "a declare is answered before its proof is on the disk",
        "broker/penstock/storage/definitions_proof.py",
        "        os.fdatasync(self._descriptor)\n",
        "",
        POWER,
    ),
    Fault(
        "a start goes on without policies that were there",
        "broker/penstock/node/vhosts_storage.py",
        "        self._directory.check_settings(name)\n",
        "",
        SETTINGS,
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
        "broker/rust/log/src/checkpoint/fields.rs",
        "let mut producers: Vec<_> = state.producers.iter().collect();",
        "let mut producers: Vec<_> = state.producers.iter().map(|(id, _)| (id, &0_u64)).collect();",
        REPLAY,
    ),
    Fault(
        "a checkpoint forgets how far messages went out",
        "broker/rust/log/src/checkpoint/fields.rs",
        "for ((owner, key), value) in &state.marks {",
        "for ((owner, key), value) in &state.marks {\n"
        "        let value: &[u8] = if owner.first() == Some(&b'd') { &[] } else { value };",
        REPLAY,
    ),
    Fault(
        "a deleted queue keeps the mark of its deliveries",
        "broker/rust/log/src/marks.rs",
        "let owners = [owner_of_groups, owner_of_leases, owner_of_stage, owner_of_deliveries, owner_of_identity];",
        "let owners = [owner_of_groups, owner_of_leases, owner_of_stage, owner_of_identity];",
        REPLAY,
    ),
    Fault(
        "a start takes the header of an earlier segment in reused space for a segment's own",
        "broker/rust/log/src/recovery/headers.rs",
        "is_new && before.last().is_none_or(|before| place(header) >= place(before))",
        "let _ = (is_new, place);\n    before.last().is_none_or(|before| header.log_id == before.log_id)",
        "cargo test --locked --quiet -p penstock-log --test reused_space",
    ),
    Fault(
        "a start removes what a manifest replaces that is not on the disk",
        "broker/rust/log/src/recovery/headers.rs",
        "        if !replaced.is_empty() {\n",
        "        if replaced.len() == usize::MAX {\n",
        "cargo test --locked --quiet -p penstock-log --test interrupted_starts",
    ),
    Fault(
        "a backup reads evicted pages of a segment, and they are delivered without a check",
        "broker/rust/log/src/backup.rs",
        "        from.segment.inspect(|segment| segment.note_read(at, at + length as u64));\n",
        "",
        f"{LOG} reread",
    ),
    Fault(
        "a start does not complete a cut",
        "broker/rust/log/src/recovery.rs",
        "        cut.complete(disk, directory, &mut synced, None)?;\n",
        "        let _ = cut;\n",
        CUT,
    ),
    Fault(
        "a cut leaves bytes of the segment that is written to",
        "broker/rust/log/src/log/cutting.rs",
        "from: self.active.reserved }",
        "from: 0 }",
        REPLICAS,
    ),
    Fault(
        "records that were cut count as synced",
        "broker/rust/log/src/cut.rs",
        "        synced.cut(disk, self.position, self.epoch)?;\n",
        "",
        CUT,
    ),
    Fault(
        "a cut begins before its intention is on the disk",
        "broker/rust/log/src/cut.rs",
        "        write_whole(disk, &temporary, &self.encode())?;\n"
        '        disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))?;\n'
        "        sync_names(disk, directory)\n",
        "        write_whole(disk, &temporary, &self.encode())?;\n"
        '        disk.rename(&temporary, &path).map_err(|error| LogError::io("rename", &temporary, error))\n',
        CUT,
    ),
    Fault(
        "a sync from before a cut counts for later records",
        "broker/rust/log/src/log/syncing.rs",
        "        if synced.cuts == self.cuts {\n",
        "        if synced.cuts <= self.cuts {\n",
        REPLICAS,
    ),
    Fault(
        "a fold goes beyond the high watermark",
        "broker/rust/log/src/log/bound.rs",
        "            Some(bound) => self.sealed.partition_point(|sealed| sealed.end <= bound),\n",
        "            Some(_) => self.sealed.len(),\n",
        REPLICAS,
    ),
    Fault(
        "a high watermark within a record",
        "broker/rust/log/src/log/bound.rs",
        "        if !self.ends_record(before, bound)? {\n",
        "        if false {\n",
        REPLICAS,
    ),
    Fault(
        "a promise counts before it is on the disk",
        "broker/rust/replica/src/replica.rs",
        "            if epoch > self.promised {\n                return self.promise(epoch, from);\n            }\n",
        "            self.promised = self.promised.max(epoch);\n",
        SIMULATION,
    ),
    Fault(
        "a larger in-sync set does not count until it is decided",
        "broker/rust/replica/src/leader.rs",
        "record.in_sync.iter().chain(asked_for)",
        "record.in_sync.iter().chain(asked_for.take(0))",
        SIMULATION,
    ),
    Fault(
        "the leader's own disk does not count",
        "broker/rust/replica/src/leader.rs",
        "        let (synced, me) = (self.log.synced, self.me.replica);",
        "        let (synced, me) = (self.log.end, self.me.replica);",
        SIMULATION,
    ),
    Fault(
        "a restarted leader goes on in its epoch",
        "broker/rust/replica/src/replica.rs",
        "        let leads = record.leader == self.me && record.epoch > self.promised;",
        "        let leads = record.leader.broker == self.me.broker && record.epoch >= self.promised;",
        SIMULATION,
    ),
    Fault(
        "a learner joins before it has everything",
        "broker/rust/replica/src/membership.rs",
        "                && peer.acknowledged >= floor\n",
        "                && peer.acknowledged >= floor.min(1)\n",
        SIMULATION,
    ),
    Fault(
        "a learner is elected",
        "broker/rust/replica/src/campaign.rs",
        "        if !is_member {\n",
        "        if false {\n",
        SIMULATION,
    ),
    Fault(
        "a follower cuts to its high watermark",
        "broker/rust/replica/src/follower.rs",
        "        if equal_until < committed {\n",
        "        let equal_until = committed;\n        if equal_until < committed {\n",
        SIMULATION,
    ),
    Fault(
        "a follower acknowledges what is not synced",
        "broker/rust/replica/src/follower.rs",
        "following.verified.min(synced));",
        "following.verified);",
        SIMULATION,
    ),
    Fault(
        "an unknown change is forgotten",
        "broker/rust/replica/src/membership.rs",
        "            Some(pending) if pending.base == version => {\n",
        "            Some(pending) if pending.base == version && !pending.is_unknown => {\n",
        SIMULATION,
    ),
    Fault(
        "an answer to another comparison of logs counts",
        "broker/rust/replica/src/follower.rs",
        "        if following.session != session\n            || !matches!",
        "        if !matches!",
        SIMULATION,
    ),
    Fault(
        "a cut leaves records synced",
        "broker/rust/replica/src/follower.rs",
        "        (log.end, log.synced) = (position, log.synced.min(position));",
        "        log.end = position;",
        SIMULATION,
    ),
)
