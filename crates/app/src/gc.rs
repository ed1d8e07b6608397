//! `parlor gc`: deletes old sessions and unreferenced files, and shrinks the database.
//!
//! The engine's retention decides which sessions to delete. This module passes it the limits and prints what was deleted.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use parlor_engine::Sessions;
use parlor_engine::retention::{CollectionReport, DeletedSession, DeletionReason, RECENTLY_USED, Retention};
use serde::Serialize;

use crate::console::Console;
use crate::json;
use crate::sessions::NOT_YET_ERASED;
use crate::sessions::pick::{full_id, short_id};
use crate::settings::table::{MAX_DAYS, NEVER, UNLIMITED};
use crate::settings::{Config, RetentionConfig, size};
use crate::text::truncate;
use crate::time::minute;

/// Titles are truncated to this many columns.
const TITLE_COLUMNS: usize = 40;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The flags of `parlor gc`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete sessions that were not used for this many days, or "never" [default: retention.days, 90]
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Option<Limit>,
    /// Delete sessions until the rest takes at most this space, such as 2GiB, or "unlimited" [default:
    /// retention.max_size, 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    keep_bytes: Option<Limit>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A limit from the command line; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

fn days(text: &str) -> Result<Limit, String> {
    if text == NEVER {
        return Ok(Limit(None));
    }
    let days = text.parse().ok().filter(|days| (1..=MAX_DAYS).contains(days));
    days.map(|days| Limit(Some(days)))
        .ok_or_else(|| format!("expected a whole number from 1 to {MAX_DAYS}, or {NEVER}"))
}

fn bytes(text: &str) -> Result<Limit, String> {
    if text == UNLIMITED { Ok(Limit(None)) } else { size::parse(text).map(Some).map(Limit) }
}

/// Deletes what exceeds the limits, and prints what was deleted.
pub(crate) async fn gc(
    sessions: &Sessions,
    config: &Config,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let retention = retention(config, options);
    let mut written = Ok(());
    let report = |deleted: &DeletedSession| {
        if written.is_ok() {
            written = if options.json {
                json::write_line(out, &deleted_line(deleted))
            } else {
                print(deleted, console, out)
            };
        }
    };
    let collected = sessions.collect(retention, options.dry_run, report).await?;
    written?;
    if options.json {
        json::write_line(out, &summary_line(&collected, options.dry_run))?;
    } else {
        print_summary(&collected, retention, options.dry_run, out)?;
    }
    Ok(())
}

/// The limits from the command line; where there is none, those of the settings.
fn retention(config: &Config, options: &Options) -> Retention {
    let days = options.older_than.map_or(config.retention.days, |limit| limit.0);
    let max_size = options.keep_bytes.map_or(config.retention.max_size, |limit| limit.0);
    limits(RetentionConfig { days, max_size, ..config.retention })
}

/// The limits of the settings, as the engine takes them.
pub(crate) fn limits(config: RetentionConfig) -> Retention {
    let max_age = config.days.map(|days| DAY * u32::try_from(days).unwrap_or(u32::MAX));
    Retention { max_age, max_bytes: config.max_size }
}

fn print(deleted: &DeletedSession, console: Console, out: &mut dyn Write) -> io::Result<()> {
    let id = if console.stdout_is_terminal { short_id(&deleted.id) } else { full_id(&deleted.id) };
    let (used, size) = (minute(deleted.updated), size::show(deleted.bytes));
    let title = truncate(deleted.title.as_deref().unwrap_or("-"), TITLE_COLUMNS);
    writeln!(out, "{id}  {used}  {size:>10}  {}  {title}", reason_label(deleted.reason))
}

fn reason_label(reason: DeletionReason) -> &'static str {
    match reason {
        DeletionReason::Age => "old  ",
        DeletionReason::Size => "space",
    }
}

fn print_summary(
    collected: &CollectionReport,
    retention: Retention,
    dry_run: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let CollectionReport {
        checked,
        in_use,
        deleted,
        deleted_bytes,
        media_files,
        media_bytes,
        reclaimed_bytes,
        is_erased,
    } = *collected;
    let verb = if dry_run { "would be deleted" } else { "deleted" };
    let age = retention.max_age.map_or("no age limit".to_owned(), |age| {
        format!("{} days since the last use", age.as_secs() / DAY.as_secs())
    });
    let total = retention
        .max_bytes
        .map_or("no size limit".to_owned(), |bytes| format!("{} in total", size::show(bytes)));
    writeln!(out, "{deleted} of {checked} sessions {verb} ({}).", size::show(deleted_bytes))?;
    writeln!(
        out,
        "Limits: {age}, {total}. Sessions that were used within the last {} hours are always kept.",
        RECENTLY_USED.as_secs() / 3600
    )?;
    if in_use > 0 {
        writeln!(out, "{in_use} more exceed the limits, but are in use.")?;
    }
    if media_files > 0 {
        writeln!(out, "{media_files} unreferenced stored files {verb} ({}).", size::show(media_bytes))?;
    }
    if dry_run {
        writeln!(out, "Nothing was changed: this was a dry run.")
    } else {
        writeln!(out, "The database is {} smaller.", size::show(reclaimed_bytes))?;
        if is_erased { Ok(()) } else { writeln!(out, "{NOT_YET_ERASED}") }
    }
}

#[derive(Serialize)]
struct DeletedLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    updated: String,
    bytes: u64,
    reason: &'static str,
}

fn deleted_line(deleted: &DeletedSession) -> DeletedLine<'_> {
    let reason = match deleted.reason {
        DeletionReason::Age => "age",
        DeletionReason::Size => "size",
    };
    let (session, title, bytes) = (deleted.id.as_str(), deleted.title.as_deref(), deleted.bytes);
    DeletedLine { kind: "deleted", session, title, updated: deleted.updated.rfc3339(), bytes, reason }
}

#[derive(Serialize)]
struct SummaryLine {
    #[serde(rename = "type")]
    kind: &'static str,
    dry_run: bool,
    sessions: usize,
    deleted: usize,
    deleted_bytes: u64,
    in_use: usize,
    media_files: u64,
    media_bytes: u64,
    reclaimed_bytes: u64,
    erased: bool,
}

fn summary_line(collected: &CollectionReport, dry_run: bool) -> SummaryLine {
    SummaryLine {
        kind: "collected",
        dry_run,
        sessions: collected.checked,
        deleted: collected.deleted,
        deleted_bytes: collected.deleted_bytes,
        in_use: collected.in_use,
        media_files: collected.media_files,
        media_bytes: collected.media_bytes,
        reclaimed_bytes: collected.reclaimed_bytes,
        erased: collected.is_erased,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(older_than: Option<Limit>, keep_bytes: Option<Limit>) -> Options {
        Options { dry_run: true, older_than, keep_bytes, json: false }
    }

    #[test]
    fn the_command_line_overrides_the_settings() {
        let config = Config::default();
        let (ninety, ten) = (Some(DAY * 90), Some(10 << 30));
        assert_eq!(retention(&config, &options(None, None)), Retention { max_age: ninety, max_bytes: ten });
        let from_flags = options(Some(Limit(Some(7))), Some(Limit(None)));
        assert_eq!(retention(&config, &from_flags), Retention { max_age: Some(DAY * 7), max_bytes: None });
    }

    #[test]
    fn limits_have_the_same_syntax_as_the_settings() {
        assert_eq!((days("never"), days("30")), (Ok(Limit(None)), Ok(Limit(Some(30)))));
        assert!(days("0").is_err() && days("36501").is_err() && days("x").is_err());
        assert_eq!((bytes("unlimited"), bytes("1KiB")), (Ok(Limit(None)), Ok(Limit(Some(1024)))));
        assert!(bytes("much").is_err());
    }
}
