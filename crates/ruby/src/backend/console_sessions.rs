//! The folders of console sessions. Each holds the snippets that the user typed in one session.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Clock, RubyReply, Timestamp};

use super::{KEPT_CONSOLE_SESSIONS, KEPT_SNIPPETS, private};

/// How many names are tried for a new session if folders of those names exist already.
const MAX_NAME_TRIES: u32 = 100;

pub(super) struct ConsoleSessions {
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    format_time: fn(Timestamp) -> String,
    this_second: Mutex<SessionsOfSecond>,
}

/// The sessions that began in one second. Their names have the same time, so more of them need a number.
#[derive(Default)]
struct SessionsOfSecond {
    /// The time as it is in names.
    time: String,
    /// How many sessions each process has begun.
    begun: HashMap<u64, u32>,
}

impl ConsoleSessions {
    pub(super) fn open(
        state: &Path,
        clock: Arc<dyn Clock>,
        format_time: fn(Timestamp) -> String,
    ) -> io::Result<Self> {
        let folder = state.join("repl");
        private::make_folders(&folder)?;
        Ok(Self { folder, clock, format_time, this_second: Mutex::default() })
    }

    /// Begins a session for the client process `pid`. Without a `pid`, its name has the id of this process.
    pub(super) fn begin(&self, pid: Option<u64>) -> RubyReply {
        match self.create_folder(pid.unwrap_or_else(|| u64::from(std::process::id()))) {
            Ok(session) => {
                self.delete_oldest();
                RubyReply::ConsoleOpened { session }
            }
            Err(error) => {
                let reason = format!("cannot make a folder in {}: {error}", self.folder.display());
                RubyReply::ConsoleRefused { reason }
            }
        }
    }

    /// Saves a snippet and returns its path, for evaluation. An error of saving is ignored: the snippet is evaluated
    /// all the same.
    pub(super) fn save_snippet(&self, session: &str, number: u64, code: &str) -> PathBuf {
        let folder = self.folder.join(session);
        let path = |number: u64| folder.join(format!("{number:04}.rb"));
        let _ = private::write(&path(number), code);
        if number > KEPT_SNIPPETS {
            let _ = std::fs::remove_file(path(number - KEPT_SNIPPETS));
        }
        path(number)
    }

    fn create_folder(&self, pid: u64) -> io::Result<String> {
        let time = name_time(&(self.format_time)(self.clock.now()));
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..MAX_NAME_TRIES {
            let session = match self.count_session(&time, pid) {
                1 => format!("{time}-{pid}"),
                number => format!("{time}-{pid}-{number}"),
            };
            match private::make_folder(&self.folder.join(&session)) {
                Ok(()) => return Ok(session),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Counts one more session of `pid` in the second of `time`, and returns how many that makes.
    fn count_session(&self, time: &str, pid: u64) -> u32 {
        let mut this_second = self.this_second.lock().unwrap_or_else(PoisonError::into_inner);
        if this_second.time != time {
            *this_second = SessionsOfSecond { time: time.to_owned(), begun: HashMap::new() };
        }
        let number = this_second.begun.entry(pid).or_default();
        *number += 1;
        *number
    }

    /// Deletes the oldest sessions beyond [`KEPT_CONSOLE_SESSIONS`]. Names begin with the time, then have a number.
    fn delete_oldest(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_by_cached_key(|name| {
            let name = name.to_string_lossy().into_owned();
            let mut parts = name.split('-').map(str::to_owned);
            let time = (parts.next(), parts.next());
            let number: Option<u32> = parts.nth(1).and_then(|number| number.parse().ok());
            (time, number, name)
        });
        let old = names.len().saturating_sub(KEPT_CONSOLE_SESSIONS);
        for name in names.into_iter().take(old) {
            // A folder that cannot be deleted now is tried again with the next session.
            let _ = std::fs::remove_dir_all(self.folder.join(name));
        }
    }
}

/// The beginning of a session name, `s260314-091500`, for the time `2026-03-14T09:15:00.000`.
fn name_time(moment: &str) -> String {
    let digits: String = moment.chars().filter(char::is_ascii_digit).skip(2).take(12).collect();
    let (date, time) = digits.split_at(digits.len().min(6));
    format!("s{date}-{time}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
    }

    fn sessions(folder: &Path) -> ConsoleSessions {
        let format_time = |at: Timestamp| format!("2026-03-14T09:15:{:02}.000", at.0 / 1000 % 60);
        ConsoleSessions::open(folder, Arc::new(FixedClock), format_time).unwrap()
    }

    fn begin(sessions: &ConsoleSessions, pid: Option<u64>) -> String {
        let reply = sessions.begin(pid);
        let RubyReply::ConsoleOpened { session } = reply else { panic!("{reply:?}") };
        session
    }

    #[test]
    fn a_session_name_has_time_and_process_and_is_unique() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        assert_eq!(begin(&sessions, Some(4242)), "s260314-091500-4242");
        assert_eq!(begin(&sessions, Some(4242)), "s260314-091500-4242-2");
        assert_eq!(begin(&sessions, Some(4243)), "s260314-091500-4243");
        assert!(begin(&sessions, None).ends_with(&format!("-{}", std::process::id())));
        let path = sessions.save_snippet("s260314-091500-4242", 7, "1 + 1");
        assert!(path.ends_with("repl/s260314-091500-4242/0007.rb"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "1 + 1");
    }

    #[test]
    fn many_sessions_in_one_second_keep_its_time_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        let names: Vec<String> = (0..300).map(|_| begin(&sessions, Some(1))).collect();
        assert!(names.iter().all(|name| name.starts_with("s260314-091500-1")), "{:?}", names.last());
        let mut newest = names.iter().rev().take(KEPT_CONSOLE_SESSIONS);
        assert!(newest.all(|name| sessions.folder.join(name).exists()));
        assert_eq!(names[299], "s260314-091500-1-300");
        // A folder of another process, such as an earlier server, is not used.
        std::fs::create_dir(sessions.folder.join("s260314-091500-1-301")).unwrap();
        assert_eq!(begin(&sessions, Some(1)), "s260314-091500-1-302");
    }

    #[test]
    fn old_sessions_and_snippets_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = sessions(folder.path());
        let first = begin(&sessions, Some(1));
        for number in 1..=KEPT_SNIPPETS + 3 {
            sessions.save_snippet(&first, number, "");
        }
        let count = |folder: PathBuf| std::fs::read_dir(folder).unwrap().count();
        assert_eq!(count(sessions.folder.join(&first)) as u64, KEPT_SNIPPETS);
        for _ in 0..KEPT_CONSOLE_SESSIONS {
            begin(&sessions, Some(1));
        }
        assert_eq!(count(sessions.folder.clone()), KEPT_CONSOLE_SESSIONS);
        assert!(!sessions.folder.join(first).exists());
    }
}
