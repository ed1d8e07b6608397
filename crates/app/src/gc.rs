//! `parlor gc`: deletes old sessions and what nothing refers to any more, and gives the space back.
//!
//! Which sessions go is decided by the engine's retention; this says by what limits, and what went.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use parlor_engine::Sessions;
use parlor_engine::retention::{Collected, Deleted, RECENT, Reason, Retention};
use serde::Serialize;

use crate::console::Console;
use crate::json;
use crate::sessions::STILL_THERE;
use crate::sessions::pick::short;
use crate::settings::table::{MAX_DAYS, NEVER, UNLIMITED};
use crate::settings::{Config, size};
use crate::text::cut;
use crate::time::minute;

/// How many columns of a title are shown.
const TITLE_COLUMNS: usize = 40;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What to keep.
#[derive(Args)]
pub(crate) struct Options {
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete sessions that were not used for so many days, or "never" [default: retention.days, 90]
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Option<Limit>,
    /// Keep so much in all, such as 2GiB, or "unlimited" [default: retention.max_size, 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    keep_bytes: Option<Limit>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// A limit that was asked for; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(Option<u64>);

fn days(text: &str) -> Result<Limit, String> {
    if text == NEVER {
        return Ok(Limit(None));
    }
    let days = text.parse().ok().filter(|days| (1..=MAX_DAYS).contains(days));
    days.map(|days| Limit(Some(days)))
        .ok_or_else(|| format!("write a whole number from 1 to {MAX_DAYS}, or {NEVER}"))
}

fn bytes(text: &str) -> Result<Limit, String> {
    if text == UNLIMITED { Ok(Limit(None)) } else { size::parse(text).map(Some).map(Limit) }
}

/// Collects, and says what went.
pub(crate) async fn gc(
    sessions: &Sessions,
    config: &Config,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let retention = retention(config, options);
    let mut written = Ok(());
    let tell = |deleted: &Deleted| {
        if written.is_ok() {
            written = if options.json {
                json::write_line(out, &line(deleted))
            } else {
                print(deleted, console, out)
            };
        }
    };
    let collected = sessions.collect(retention, options.dry_run, tell).await?;
    written?;
    if options.json {
        json::write_line(out, &summary(&collected, options.dry_run))?;
    } else {
        conclude(&collected, retention, options.dry_run, out)?;
    }
    Ok(())
}

/// What was asked for, else what is configured.
fn retention(config: &Config, options: &Options) -> Retention {
    let days = options.older_than.map_or(config.retention.days, |limit| limit.0);
    let max_bytes = options.keep_bytes.map_or(config.retention.max_size, |limit| limit.0);
    let max_age = days.map(|days| DAY * u32::try_from(days).unwrap_or(u32::MAX));
    Retention { max_age, max_bytes }
}

fn print(deleted: &Deleted, console: Console, out: &mut dyn Write) -> io::Result<()> {
    let id = if console.output { short(&deleted.id) } else { deleted.id.to_string() };
    let (used, size) = (minute(deleted.updated), size::show(deleted.bytes));
    let title = cut(deleted.title.as_deref().unwrap_or("-"), TITLE_COLUMNS);
    writeln!(out, "{id}  {used}  {size:>10}  {}  {title}", why(deleted.reason))
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Age => "old  ",
        Reason::Size => "space",
    }
}

fn conclude(
    collected: &Collected,
    retention: Retention,
    dry_run: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Collected {
        looked_at,
        in_use,
        deleted,
        deleted_bytes,
        media_files,
        media_bytes,
        reclaimed_bytes,
        is_erased,
    } = *collected;
    let verb = if dry_run { "would be deleted" } else { "deleted" };
    let age = retention.max_age.map_or("of any age".to_owned(), |age| {
        format!("used in the last {} days", age.as_secs() / DAY.as_secs())
    });
    let room = retention
        .max_bytes
        .map_or("of any size".to_owned(), |bytes| format!("up to {} in all", size::show(bytes)));
    writeln!(out, "{deleted} of {looked_at} sessions {verb} ({}).", size::show(deleted_bytes))?;
    writeln!(
        out,
        "Kept is what was {age}, {room}, and in any case what was used within {} hours.",
        RECENT.as_secs() / 3600
    )?;
    if in_use > 0 {
        writeln!(out, "{in_use} would have gone, but are in use.")?;
    }
    if media_files > 0 {
        writeln!(
            out,
            "{media_files} stored files that nothing refers to {verb} ({}).",
            size::show(media_bytes)
        )?;
    }
    if dry_run {
        writeln!(out, "Nothing was changed: this was a dry run.")
    } else {
        writeln!(out, "The database is {} smaller.", size::show(reclaimed_bytes))?;
        if is_erased { Ok(()) } else { writeln!(out, "{STILL_THERE}") }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    updated: String,
    bytes: u64,
    reason: &'static str,
}

fn line(deleted: &Deleted) -> Line<'_> {
    let reason = match deleted.reason {
        Reason::Age => "age",
        Reason::Size => "size",
    };
    let (session, title, bytes) = (deleted.id.as_str(), deleted.title.as_deref(), deleted.bytes);
    Line { kind: "deleted", session, title, updated: deleted.updated.rfc3339(), bytes, reason }
}

#[derive(Serialize)]
struct Summary {
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

fn summary(collected: &Collected, dry_run: bool) -> Summary {
    Summary {
        kind: "collected",
        dry_run,
        sessions: collected.looked_at,
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
    fn what_is_asked_for_goes_before_what_is_configured() {
        let config = Config::default();
        let (ninety, ten) = (Some(DAY * 90), Some(10 << 30));
        assert_eq!(retention(&config, &options(None, None)), Retention { max_age: ninety, max_bytes: ten });
        let asked = options(Some(Limit(Some(7))), Some(Limit(None)));
        assert_eq!(retention(&config, &asked), Retention { max_age: Some(DAY * 7), max_bytes: None });
    }

    #[test]
    fn limits_are_read_as_the_settings_read_them() {
        assert_eq!((days("never"), days("30")), (Ok(Limit(None)), Ok(Limit(Some(30)))));
        assert!(days("0").is_err() && days("36501").is_err() && days("x").is_err());
        assert_eq!((bytes("unlimited"), bytes("1KiB")), (Ok(Limit(None)), Ok(Limit(Some(1024)))));
        assert!(bytes("much").is_err());
    }
}
