//! Finds the process groups in a child's session, and the living members of a group.
//!
//! An interactive shell gives each of its jobs a process group of its own, so signals to the shell's group do not reach
//! them. The kernel does not reuse a session id before the session's leader, the child, is reaped; so every process in the
//! session is a descendant of the child.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, RawPid, test_kill_process_group};

/// How often [`has_living_member`] lists the processes before it trusts the kernel's word that the group has a member.
const LISTINGS: usize = 3;

/// The process groups in the session of `leader` that have living members. Reads all of `/proc`, so call it only when a
/// process is being ended.
pub(crate) fn living_groups(leader: Pid) -> HashSet<Pid> {
    listed_processes()
        .filter(|process| process.is_alive && process.session == Some(leader))
        .map(|process| process.group)
        .collect()
}

/// Whether a living process is in `group`. A zombie has ended: it only waits until its parent reaps it, which a slow init
/// process does late or never. Reads all of `/proc`, unless the group is empty. Without `/proc`, zombies count.
pub(crate) fn has_living_member(group: Pid) -> bool {
    for _ in 0..LISTINGS {
        // The kernel counts zombies too.
        if test_kill_process_group(group).is_err() {
            return false;
        }
        let mut members = listed_processes().filter(|process| process.group == group).peekable();
        // A listing of `/proc` is no snapshot: while other processes start and end it can lack one that exists.
        if members.peek().is_some() {
            return members.any(|member| member.is_alive);
        }
    }
    true
}

/// A process in `/proc`.
#[derive(Debug, PartialEq, Eq)]
struct ListedProcess {
    group: Pid,
    /// `None` if the session began outside of this process's PID namespace, as it can in a container.
    session: Option<Pid>,
    /// False for a zombie.
    is_alive: bool,
}

/// Lists the processes of this machine; none without `/proc`.
fn listed_processes() -> impl Iterator<Item = ListedProcess> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| process_in(&stat))
}

/// The process of a `/proc/PID/stat` line.
fn process_in(stat: &str) -> Option<ListedProcess> {
    // The process name before it is in parentheses and may contain any text.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let (state, _parent, group, session) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_alive = !matches!(state, "Z" | "X" | "x");
    let pid = |text: &str| text.parse::<RawPid>().ok().filter(|number| *number > 0).and_then(Pid::from_raw);
    Some(ListedProcess { group: pid(group)?, session: pid(session), is_alive })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};

    use super::*;

    /// A child in a process group of its own. Reaped when dropped.
    pub(crate) struct Grouped(Child);

    impl Grouped {
        #[expect(clippy::disallowed_methods, reason = "this crate reaps the children that it starts")]
        fn start() -> (Self, Pid) {
            let child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
            let pid = Pid::from_child(&child);
            (Self(child), pid)
        }

        /// A child that has ended and is not reaped yet.
        pub(crate) fn start_zombie() -> (Self, Pid) {
            let (child, pid) = Self::start();
            kill_process(pid, Signal::KILL).unwrap();
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            (child, pid)
        }
    }

    impl Drop for Grouped {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_name_cannot_forge_fields() {
        let pid = |number| Pid::from_raw(number).unwrap();
        let line = |state: &str| format!("71 (a) Z 1 (b) ) {state} 70 72 70 0 -1 4194304");
        let process = |is_alive| ListedProcess { group: pid(72), session: Some(pid(70)), is_alive };
        assert_eq!(process_in(&line("S")), Some(process(true)));
        assert_eq!(process_in(&line("Z")), Some(process(false)));
        assert_eq!(process_in("nonsense"), None);
    }

    #[test]
    fn a_process_whose_session_began_outside_of_the_namespace_is_listed() {
        let group = Pid::from_raw(72).unwrap();
        let process = ListedProcess { group, session: None, is_alive: false };
        assert_eq!(process_in("72 (cat) Z 7 72 0 0 -1 4194304"), Some(process));
    }

    #[test]
    fn a_zombie_is_no_living_member_of_its_group() {
        let (_child, group) = Grouped::start();
        assert!(has_living_member(group));
        let (child, group) = Grouped::start_zombie();
        assert!(test_kill_process_group(group).is_ok(), "the kernel still knows the group");
        assert!(!has_living_member(group));
        drop(child);
        assert!(!has_living_member(group));
    }
}
