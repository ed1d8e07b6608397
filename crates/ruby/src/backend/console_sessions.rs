//! The folders of consoles: one for each session, with what was typed there.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parlor_vocab::{Clock, RubyReply, Timestamp};

use super::{KEPT_SESSIONS, KEPT_SNIPPETS, private};

/// How often another second is tried when a session of this one is there already.
const NAME_TRIES: i64 = 100;

pub(super) struct ConsoleSessions {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    spell: fn(Timestamp) -> String,
}

impl ConsoleSessions {
    pub(super) fn open(
        state: &Path,
        clock: Arc<dyn Clock>,
        spell: fn(Timestamp) -> String,
    ) -> io::Result<Self> {
        let folder = state.join("repl");
        private::make_folders(&folder)?;
        Ok(Self { folder, clock, spell })
    }

    /// Begins a session of the process `pid`, or of this one.
    pub(super) fn begin(&self, pid: Option<u64>) -> RubyReply {
        match self.make(pid.unwrap_or_else(|| u64::from(std::process::id()))) {
            Ok(session) => {
                self.tidy();
                RubyReply::ConsoleOpened { session }
            }
            Err(error) => {
                let reason = format!("cannot make a folder in {}: {error}", self.folder.display());
                RubyReply::ConsoleRefused { reason }
            }
        }
    }

    /// Keeps a snippet, and says under which name it is evaluated. If it cannot be kept it is evaluated all
    /// the same.
    pub(super) fn keep(&self, session: &str, number: u64, code: &str) -> PathBuf {
        let folder = self.folder.join(session);
        let path = |number: u64| folder.join(format!("{number:04}.rb"));
        let _ = private::write(&path(number), code);
        if number > KEPT_SNIPPETS {
            let _ = std::fs::remove_file(path(number - KEPT_SNIPPETS));
        }
        path(number)
    }

    fn make(&self, pid: u64) -> io::Result<String> {
        let now = self.clock.now();
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for second in 0..NAME_TRIES {
            let session = name(&(self.spell)(Timestamp(now.0 + second * 1000)), pid);
            match private::make_folder(&self.folder.join(&session)) {
                Ok(()) => return Ok(session),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Deletes the oldest sessions. Their names begin with their time.
    fn tidy(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        let old = names.len().saturating_sub(KEPT_SESSIONS);
        for name in names.into_iter().take(old) {
            // One that cannot be deleted is met again.
            let _ = std::fs::remove_dir_all(self.folder.join(name));
        }
    }
}

/// `s260314-091500-4242` of `2026-03-14T09:15:00.000`.
fn name(moment: &str, pid: u64) -> String {
    let digits: String = moment.chars().filter(char::is_ascii_digit).skip(2).take(12).collect();
    let (date, time) = digits.split_at(digits.len().min(6));
    format!("s{date}-{time}-{pid}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    fn sessions(folder: &Path) -> ConsoleSessions {
        let spell = |at: Timestamp| format!("2026-03-14T09:15:{:02}.000", at.0 / 1000 % 60);
        ConsoleSessions::open(folder, Arc::new(Fixed), spell).unwrap()
    }

    fn begin(sessions: &ConsoleSessions, pid: Option<u64>) -> String {
        let reply = sessions.begin(pid);
        let RubyReply::ConsoleOpened { session } = reply else { panic!("{reply:?}") };
        session
    }

    #[test]
    fn a_session_has_a_time_and_a_process_and_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        assert_eq!(begin(&sessions, Some(4242)), "s260314-091500-4242");
        assert_eq!(begin(&sessions, Some(4242)), "s260314-091501-4242");
        assert!(begin(&sessions, None).ends_with(&format!("-{}", std::process::id())));
        let path = sessions.keep("s260314-091500-4242", 7, "1 + 1");
        assert!(path.ends_with("repl/s260314-091500-4242/0007.rb"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "1 + 1");
    }

    #[test]
    fn old_sessions_and_snippets_go() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        let first = begin(&sessions, Some(1));
        for number in 1..=KEPT_SNIPPETS + 3 {
            sessions.keep(&first, number, "");
        }
        let count = |folder: PathBuf| std::fs::read_dir(folder).unwrap().count();
        assert_eq!(count(sessions.folder.join(&first)) as u64, KEPT_SNIPPETS);
        for _ in 0..KEPT_SESSIONS {
            begin(&sessions, Some(1));
        }
        assert_eq!(count(sessions.folder.clone()), KEPT_SESSIONS);
        assert!(!sessions.folder.join(first).exists());
    }
}
