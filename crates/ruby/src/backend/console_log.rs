//! The console log: a file with everything that evaluated code prints, and marks for the start and end of
//! evaluations.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{Clock, ConsoleLog, OutputStream, RubyReply, Timestamp};

use super::{CONSOLE_LOG_BYTES, private};

/// The file's name in the state folder.
const FILE_NAME: &str = "console.log";

/// The width in characters of the rules around a session mark.
const RULE_WIDTH: usize = 50;

pub(super) struct ConsoleLogFile {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    format_time: fn(Timestamp) -> String,
    log: Mutex<Log>,
}

struct Log {
    file: File,
    bytes: u64,
    /// The second of the last line with its formatted time of day. Cached, because formatting takes longer than
    /// writing the line.
    last_second: (i64, String),
    /// Whether the last write failed. Clients do not get the path of a broken log.
    is_broken: bool,
}

impl ConsoleLogFile {
    pub(super) fn open(
        state: &Path,
        clock: Arc<dyn Clock>,
        format_time: fn(Timestamp) -> String,
    ) -> io::Result<Self> {
        private::make_folders(state)?;
        let path = state.join(FILE_NAME);
        let log = Mutex::new(Log::open(&path)?);
        let console = Self { path, clock, format_time, log };
        console.mark_session("Session Started");
        Ok(console)
    }

    /// The reply with the path of the log; without a path if the log is broken.
    pub(super) fn status(&self) -> RubyReply {
        let file = (!self.lock().is_broken).then(|| self.path.clone());
        RubyReply::Console(ConsoleLog { file })
    }

    /// Writes a mark, for example for the start of an evaluation.
    pub(super) fn mark(&self, what: &str) {
        self.write(&[('D', &format!("Supex: --- {what} ---"))]);
    }

    /// Writes printed text. `omitted_bytes` more bytes were printed and dropped.
    pub(super) fn print(&self, printed: &[(OutputStream, String)], omitted_bytes: u64) {
        let letter = |stream: &OutputStream| match stream {
            OutputStream::Stdout | OutputStream::Terminal => 'I',
            OutputStream::Stderr => 'E',
        };
        let mut pieces: Vec<(char, &str)> =
            printed.iter().map(|(stream, text)| (letter(stream), text.as_str())).collect();
        let note = format!("[… {omitted_bytes} more bytes were printed …]");
        if omitted_bytes > 0 {
            pieces.push(('D', &note));
        }
        if !pieces.is_empty() {
            self.write(&pieces);
        }
    }

    /// Writes the mark for the end of the server.
    pub(super) fn mark_end(&self) {
        self.mark_session("Session Ended");
    }

    fn mark_session(&self, what: &str) {
        let rule = "=".repeat(RULE_WIDTH);
        self.write(&[('D', &rule), ('D', what), ('D', &rule)]);
    }

    fn write(&self, pieces: &[(char, &str)]) {
        let now = self.clock.now();
        let mut log = self.lock();
        let (second, millis) = (now.0.div_euclid(1000), now.0.rem_euclid(1000));
        if log.last_second.0 != second {
            log.last_second = (second, time_of_day(&(self.format_time)(now)).to_owned());
        }
        let mut text = String::new();
        for (letter, piece) in pieces {
            for line in piece.lines() {
                let time = &log.last_second.1;
                text.push_str(&format!("{time}.{millis:03}|{letter}|SketchUp|{line}\n"));
            }
        }
        log.bytes += text.len() as u64;
        log.is_broken = log.file.write_all(text.as_bytes()).is_err();
        if log.bytes > CONSOLE_LOG_BYTES
            && let Ok(fresh) = Log::open(&self.path)
        {
            *log = fresh;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// Opens the file to append to it. A file that is too long is renamed first.
    fn open(path: &Path) -> io::Result<Self> {
        if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > CONSOLE_LOG_BYTES) {
            std::fs::rename(path, path.with_extension("log.old"))?;
        }
        let file = private::open_to_append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, last_second: (i64::MIN, String::new()), is_broken: false })
    }
}

/// The time of day, `12:00:00`, in a time such as `2026-03-04T12:00:00.123`.
fn time_of_day(moment: &str) -> &str {
    let time = moment.split('T').nth(1).unwrap_or_default();
    time.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// A clock with its time in milliseconds after noon.
    struct NoonClock(AtomicI64);

    impl Clock for NoonClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    fn open_at(folder: &Path, clock: Arc<NoonClock>) -> ConsoleLogFile {
        let format_time = |at: Timestamp| format!("2026-03-04T12:00:{:02}.{:03}", at.0 / 1000, at.0 % 1000);
        ConsoleLogFile::open(folder, clock, format_time).unwrap()
    }

    fn open(folder: &Path) -> ConsoleLogFile {
        open_at(folder, Arc::new(NoonClock(123.into())))
    }

    #[test]
    fn each_line_has_the_time_at_which_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(NoonClock(0.into()));
        let console = open_at(folder.path(), Arc::clone(&clock));
        for millis in [7, 999, 1000, 2042] {
            clock.0.store(millis, Ordering::Relaxed);
            console.mark("x");
        }
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let times: Vec<&str> = text.lines().skip(3).filter_map(|line| line.split('|').next()).collect();
        assert_eq!(times, ["12:00:00.007", "12:00:00.999", "12:00:01.000", "12:00:02.042"]);
    }

    #[test]
    fn lines_have_a_time_and_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let console = open(folder.path());
        console.mark("EVAL_RUBY START");
        console
            .print(&[(OutputStream::Stdout, "a\nb".to_owned()), (OutputStream::Stderr, "c\n".to_owned())], 7);
        let text = std::fs::read_to_string(folder.path().join(FILE_NAME)).unwrap();
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(
            lines,
            [
                "12:00:00.123|D|SketchUp|Supex: --- EVAL_RUBY START ---",
                "12:00:00.123|I|SketchUp|a",
                "12:00:00.123|I|SketchUp|b",
                "12:00:00.123|E|SketchUp|c",
                "12:00:00.123|D|SketchUp|[… 7 more bytes were printed …]",
            ]
        );
        assert!(text.starts_with(&format!("12:00:00.123|D|SketchUp|{}\n", "=".repeat(50))));
    }

    #[test]
    fn a_full_log_is_renamed_and_a_new_one_begun() {
        let folder = tempfile::tempdir().unwrap();
        let console = open(folder.path());
        let line = "x".repeat(1 << 20);
        for _ in 0..6 {
            console.print(&[(OutputStream::Stdout, line.clone())], 0);
        }
        let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert!(size("console.log.old") > CONSOLE_LOG_BYTES && size(FILE_NAME) < 2 << 20);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
