//! The log of `parlor serve` on stderr. It contains no token and no other secret that parlor knows.

use std::borrow::Cow;
use std::io::{Write, stderr};

use anyhow::bail;
use clap::ValueEnum;
use parlor_engine::Redact;
use parlor_vocab::truncate_middle;
use serde_json::Value;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::stderr_writer::StderrWriter;
use crate::redaction::Redaction;

/// The longest line of the log, in bytes. The middle of a longer one is left out.
const LOG_LINE_BYTES: usize = 16 << 10;

/// Writes the last lines of the log when it is dropped.
pub(super) struct LogWriterGuard(StderrWriter);

impl Drop for LogWriterGuard {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// Starts to log lines of `level` and above. Without a level, a terminal gets warnings, and any other output gets more.
pub(super) fn start(
    level: Option<&str>,
    is_terminal: bool,
    format: LogFormat,
    redaction: Redaction,
) -> anyhow::Result<LogWriterGuard> {
    let filter = filter(level_of(level, is_terminal)?);
    let writer = StderrWriter::start(stderr())?;
    let out = writer.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(RedactingOutput { redaction, out: move || out.clone() })
        .with_ansi(false)
        .with_target(false);
    // Fails only in tests, if another test has installed a subscriber before.
    let _ = match format {
        LogFormat::Text => subscriber.finish().with(filter).try_init(),
        LogFormat::Json => {
            let subscriber =
                subscriber.json().flatten_event(true).with_current_span(false).with_span_list(false);
            subscriber.finish().with(filter).try_init()
        }
    };
    Ok(LogWriterGuard(writer))
}

/// Lines of `level` and above. Of the MCP client only errors: it logs every message of a server, which may send any number
/// of any length.
fn filter(level: LevelFilter) -> Targets {
    Targets::new().with_default(level).with_target("rmcp", level.min(LevelFilter::ERROR))
}

/// The line, shortened if it is longer than [`LOG_LINE_BYTES`]. A JSON object stays one.
fn bounded(line: &str) -> Cow<'_, str> {
    if line.len() <= LOG_LINE_BYTES {
        return line.into();
    }
    let shorten = |text: &str| truncate_middle(text, LOG_LINE_BYTES / 2).into_owned();
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return (shorten(line.trim_end()) + "\n").into();
    };
    // The other fields may be what is too long.
    fields.retain(|name, _| ["timestamp", "level", "message"].contains(&name.as_str()));
    if let Some(Value::String(message)) = fields.get_mut("message") {
        *message = shorten(message);
    }
    format!("{}\n", Value::Object(fields)).into()
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
        self.out.write_all(bounded(&self.redaction.redact(&text)).as_bytes())?;
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

    #[test]
    fn the_log_has_only_errors_of_the_mcp_client() {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_writer(Mutex::new(out))
            .finish()
            .with(filter(LevelFilter::TRACE));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "rmcp::service", "a notification");
            tracing::error!(target: "rmcp::service", "an error");
            tracing::trace!("ours");
        });
        let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert!(!log.contains("a notification") && log.contains("an error") && log.contains("ours"), "{log}");
    }

    #[test]
    fn a_long_line_is_shortened_and_json_stays_json() {
        assert_eq!(bounded("short\n"), "short\n");
        let long = "x".repeat(1 << 20);
        let text = bounded(&long);
        assert!(text.len() <= LOG_LINE_BYTES && text.ends_with('\n'));
        let line = format!("{}\n", serde_json::json!({"level": "INFO", "message": long, "other": long}));
        let json = bounded(&line);
        assert!(json.len() <= LOG_LINE_BYTES && json.ends_with('\n'));
        let fields: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(fields["level"], "INFO");
    }
}
