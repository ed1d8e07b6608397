//! Writes log lines to stderr from a thread of its own.
//!
//! The reader of stderr may stop reading: a pager waits, a pipe is full. Code that logs never waits for it.
//! (`tracing-appender` does the same, but needs seven more crates for log rotation.)

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How many lines may wait to be written. Further lines are lost, and a line says how many.
pub(super) const MAX_WAITING_LINES: usize = 1024;

/// How long the program waits at its end until the last lines are written.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);

/// Takes lines without waiting. All clones write to the same output.
#[derive(Clone)]
pub(super) struct StderrWriter {
    queue: SyncSender<Job>,
    lost: Arc<AtomicU64>,
}

enum Job {
    Line(Vec<u8>),
    /// Signals that all lines before it are written.
    Flush(SyncSender<()>),
}

impl StderrWriter {
    /// Starts the thread, which writes to `out`.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(MAX_WAITING_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        thread::Builder::new().name("stderr".to_owned()).spawn(move || write_all(&jobs, &counted, out))?;
        Ok(Self { queue, lost })
    }

    /// Waits until all lines so far are written, at most [`LAST_LINES_WAIT`].
    pub(super) fn finish(&self) {
        let (written, is_written) = sync_channel(1);
        if self.queue.try_send(Job::Flush(written)).is_ok() {
            // If the reader is too slow, the last lines are lost.
            let _ = is_written.recv_timeout(LAST_LINES_WAIT);
        }
    }
}

impl Write for StderrWriter {
    /// Queues a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Job::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(jobs: &Receiver<Job>, lost: &AtomicU64, mut out: impl Write) {
    for job in jobs {
        // If stderr is closed, there is no other place to report that.
        let _ = match job {
            Job::Line(line) => out.write_all(&line),
            Job::Flush(written) => written.try_send(()).map_err(io::Error::other),
        };
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = out.write_all(format!("{lost} lines were lost here: they were not read\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that blocks until a test opens it.
    struct Gate {
        open: Receiver<()>,
        through: SyncSender<String>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // It stays open once the sender is dropped.
            let _ = self.open.recv();
            self.through.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writing_never_waits_and_lost_lines_are_counted() {
        let (key, open) = sync_channel::<()>(0);
        let (through, written) = sync_channel(4 * MAX_WAITING_LINES);
        let mut writer = StderrWriter::start(Gate { open, through }).unwrap();
        let lines = 3 * MAX_WAITING_LINES;
        for number in 0..lines {
            writer.write_all(format!("{number}\n").as_bytes()).unwrap();
        }
        drop(key);
        let mut output = String::new();
        let has_loss = |output: &str| output.contains(" lines were lost here");
        while !has_loss(&output) {
            output.push_str(&written.recv().unwrap());
        }
        writer.finish();
        output.extend(written.try_iter());
        let (written_lines, notes): (Vec<&str>, Vec<&str>) =
            output.lines().partition(|line| line.parse::<usize>().is_ok());
        let lost: usize =
            notes.iter().map(|note| note.split(' ').next().unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!((written_lines.len() + lost, written_lines[0]), (lines, "0"));
        assert!(written_lines.len() >= MAX_WAITING_LINES, "{}", written_lines.len());
    }

    #[test]
    fn finish_waits_for_the_last_lines() {
        let (through, written) = sync_channel(8);
        let (_, open) = sync_channel(0);
        let mut writer = StderrWriter::start(Gate { open, through }).unwrap();
        writer.write_all(b"goodbye\n").unwrap();
        writer.finish();
        assert_eq!(written.try_recv().as_deref(), Ok("goodbye\n"));
    }
}
