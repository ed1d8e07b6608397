//! What `parlor serve` says on stderr while it works. Never a token.

use std::io::stderr;

use anyhow::bail;
use tracing_subscriber::filter::LevelFilter;

/// Says things of that level and above, or what fits who reads: a person wants to hear of trouble only.
pub(super) fn start(level: Option<&str>, is_terminal: bool) -> anyhow::Result<()> {
    let level = level_of(level, is_terminal)?;
    // One that is there already stays, which happens in tests only.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(stderr)
        .with_ansi(false)
        .with_target(false)
        .try_init();
    Ok(())
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
    use super::*;

    #[test]
    fn a_person_hears_of_trouble_and_a_journal_of_more() {
        assert_eq!(level_of(None, true).unwrap(), LevelFilter::WARN);
        assert_eq!(level_of(None, false).unwrap(), LevelFilter::INFO);
        assert_eq!(level_of(Some("DEBUG"), true).unwrap(), LevelFilter::DEBUG);
        assert!(level_of(Some("loud"), true).unwrap_err().to_string().contains("warn"));
    }
}
