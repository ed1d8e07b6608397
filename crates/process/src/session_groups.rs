//! Finds the process groups in a child's session.
//!
//! An interactive shell gives each of its jobs a process group of its own, so signals to the shell's group do not reach
//! them. The kernel does not reuse a session id before the session's leader, the child, is reaped; so every process in the
//! session is a descendant of the child.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, RawPid};

/// The process groups in the session of `leader` that have living members. Reads all of `/proc`, so call it only when a
/// process is being ended.
pub(crate) fn living_groups(leader: Pid) -> HashSet<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return HashSet::new() };
    processes
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| group_in(&stat, leader))
        .collect()
}

/// The group of the process in a `/proc/PID/stat` line, if the process is alive and in the session of `leader`.
fn group_in(stat: &str, leader: Pid) -> Option<Pid> {
    // The process name before it is in parentheses and may contain any text.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let (state, _parent, group, session) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_dead = matches!(state, "Z" | "X" | "x");
    let pid = |text: &str| text.parse::<RawPid>().ok().filter(|number| *number > 0).and_then(Pid::from_raw);
    (!is_dead && pid(session)? == leader).then(|| pid(group)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_fields() {
        let leader = Pid::from_raw(70).unwrap();
        let line =
            |state: &str, session: i32| format!("71 (a) Z 1 (b) ) {state} 70 72 {session} 0 -1 4194304");
        assert_eq!(group_in(&line("S", 70), leader), Pid::from_raw(72));
        assert_eq!(group_in(&line("Z", 70), leader), None);
        assert_eq!(group_in(&line("S", 71), leader), None);
        assert_eq!(group_in("nonsense", leader), None);
    }
}
