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
)
