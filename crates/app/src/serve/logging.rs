//! What `parlor serve` says on stderr while it works. Never a token, and no secret that is known.

use std::io::{Write, stderr};

use anyhow::bail;
use parlor_engine::Redact;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::journal::Journal;
use crate::redaction::Redaction;

/// Writes the last lines when it is dropped.
pub(super) struct LogWriterGuard(Journal);

impl Drop for LogWriterGuard {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Says things of that level and above, or what fits who reads: a person wants to hear of trouble only.
pub(super) fn start(
    level: Option<&str>,
    is_terminal: bool,
    redaction: Redaction,
) -> anyhow::Result<LogWriterGuard> {
    let level = level_of(level, is_terminal)?;
    let journal = Journal::start(stderr())?;
    let out = journal.clone();
    // One that is there already stays, which happens in tests only.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(Clean { redaction, out: move || out.clone() })
        .with_ansi(false)
        .with_target(false)
        .try_init();
    Ok(LogWriterGuard(journal))
}

/// Writes without secrets to what `out` gives. Lines come as a whole.
struct Clean<O> {
    redaction: Redaction,
    out: O,
}

/// One line on its way.
struct Line<W> {
    redaction: Redaction,
    out: W,
}

impl<'a, W: Write, O: Fn() -> W> MakeWriter<'a> for Clean<O> {
    type Writer = Line<W>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { redaction: self.redaction.clone(), out: (self.out)() }
    }
}

impl<W: Write> Write for Line<W> {
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
    fn a_person_hears_of_trouble_and_a_journal_of_more() {
        assert_eq!(level_of(None, true).unwrap(), LevelFilter::WARN);
        assert_eq!(level_of(None, false).unwrap(), LevelFilter::INFO);
        assert_eq!(level_of(Some("DEBUG"), true).unwrap(), LevelFilter::DEBUG);
        assert!(level_of(Some("loud"), true).unwrap_err().to_string().contains("warn"));
    }

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_said_is_without_secrets() {
        let (redactor, kept) = (parlor_auth::Redactor::new(), Kept::default());
        redactor.learn(&parlor_auth::Secret::new("s3cret-token"));
        let (out, folder) = (kept.clone(), tempfile::tempdir().unwrap());
        let redaction = Redaction::new(folder.path(), &Config::default(), &Environment::read(), &redactor);
        let subscriber =
            tracing_subscriber::fmt().with_writer(Clean { redaction, out: move || out.clone() }).finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!(said = "s3cret-token", "heard"));
        let said = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert!(said.contains("heard") && said.contains("[secret]") && !said.contains("s3cret"), "{said}");
    }
}
