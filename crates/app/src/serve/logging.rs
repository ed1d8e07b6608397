//! The log of `parlor serve` on stderr. It contains no token and no other secret that parlor knows.

use std::io::{Write, stderr};

use anyhow::bail;
use parlor_engine::Redact;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::stderr_writer::StderrWriter;
use crate::redaction::Redaction;

/// Writes the last lines of the log when it is dropped.
pub(super) struct LogWriterGuard(StderrWriter);

impl Drop for LogWriterGuard {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Starts to log lines of `level` and above. Without a level, a terminal gets warnings, and any other output gets more.
pub(super) fn start(
    level: Option<&str>,
    is_terminal: bool,
    redaction: Redaction,
) -> anyhow::Result<LogWriterGuard> {
    let level = level_of(level, is_terminal)?;
    let writer = StderrWriter::start(stderr())?;
    let out = writer.clone();
    // Fails only in tests, if another test has installed a subscriber before.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(RedactingOutput { redaction, out: move || out.clone() })
        .with_ansi(false)
        .with_target(false)
        .try_init();
    Ok(LogWriterGuard(writer))
}

/// Removes secrets from lines before it writes them to what `out` returns. Each write is a whole line.
struct RedactingOutput<O> {
    redaction: Redaction,
    out: O,
}

/// Writes one line without its secrets.
struct RedactingWriter<W> {
    redaction: Redaction,
    out: W,
}

impl<'a, W: Write, O: Fn() -> W> MakeWriter<'a> for RedactingOutput<O> {
    type Writer = RedactingWriter<W>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactingWriter { redaction: self.redaction.clone(), out: (self.out)() }
    }
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.out.write_all(self.redaction.redact(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn level_of(level: Option<&str>, is_terminal: bool) -> anyhow::Result<LevelFilter> {
    Ok(match level.map(str::to_ascii_lowercase).as_deref() {
        None if is_terminal => LevelFilter::WARN,
        None | Some("info") => LevelFilter::INFO,
        Some("off") => LevelFilter::OFF,
        Some("error") => LevelFilter::ERROR,
        Some("warn") => LevelFilter::WARN,
        Some("debug") => LevelFilter::DEBUG,
        Some("trace") => LevelFilter::TRACE,
        Some(other) => {
            bail!("PARLOR_LOG is {other:?}; it takes off, error, warn, info, debug or trace")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::environment::Environment;
    use crate::settings::Config;

    #[test]
    fn a_terminal_gets_warnings_and_a_file_gets_more() {
        assert_eq!(level_of(None, true).unwrap(), LevelFilter::WARN);
        assert_eq!(level_of(None, false).unwrap(), LevelFilter::INFO);
        assert_eq!(level_of(Some("DEBUG"), true).unwrap(), LevelFilter::DEBUG);
        assert!(level_of(Some("loud"), true).unwrap_err().to_string().contains("warn"));
    }

    /// An output that collects what is written.
    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_log_has_no_secrets() {
        let (redactor, buffer) = (parlor_auth::Redactor::new(), Buffer::default());
        redactor.learn(&parlor_auth::Secret::new("s3cret-token"));
        let (out, folder) = (buffer.clone(), tempfile::tempdir().unwrap());
        let redaction = Redaction::new(folder.path(), &Config::default(), &Environment::read(), &redactor);
        let subscriber = tracing_subscriber::fmt()
            .with_writer(RedactingOutput { redaction, out: move || out.clone() })
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!(token = "s3cret-token", "connected"));
        let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(log.contains("connected") && log.contains("[secret]") && !log.contains("s3cret"), "{log}");
    }
}
