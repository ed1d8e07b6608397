//! The files of one saved session: `ID.json`, `ID.journal` with later messages, and `ID.turn` with an unfinished answer.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use chrono::DateTime;
use parlor_vocab::{Timestamp, Usage};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::blocks::{SavedMessage, SavedMessages};

/// The versions of journals that are known.
const JOURNAL_VERSIONS: std::ops::RangeInclusive<u64> = 1..=2;

/// More than the index and the time of a message take in the file.
const MESSAGE_TIME_BYTES: usize = 128;

/// A session that the program `synaps` saved.
#[derive(Debug)]
pub(crate) struct SavedSession {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) model: String,
    pub(super) thinking_level: String,
    pub(super) created: Timestamp,
    pub(super) updated: Timestamp,
    pub(super) usage: Usage,
    /// The session that continues this one after a compaction.
    pub(super) compacted_into: Option<String>,
    pub(super) messages: Vec<SavedMessage>,
    /// How many messages and blocks could not be read.
    pub(super) skipped: usize,
    /// When the messages were written, by their index, as far as the file says so.
    pub(super) times: BTreeMap<usize, Timestamp>,
    /// The text of an answer that was not complete when the program died; empty if no text had come.
    pub(super) interrupted_text: Option<String>,
}

/// The members that `ID.json` and the records of a journal share.
#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    title: String,
    model: String,
    #[serde(default)]
    thinking_level: String,
    #[serde(deserialize_with = "time")]
    created_at: Timestamp,
    #[serde(deserialize_with = "time")]
    updated_at: Timestamp,
    #[serde(default)]
    total_input_tokens: u64,
    #[serde(default)]
    total_output_tokens: u64,
    #[serde(default)]
    session_cost: f64,
    compacted_into: Option<String>,
}

/// The other members of `ID.json`.
#[derive(Deserialize)]
struct Snapshot<'a> {
    #[serde(rename = "_journal_generation")]
    generation: Option<String>,
    #[serde(default)]
    total_cache_read_tokens: u64,
    #[serde(default)]
    total_cache_creation_tokens: u64,
    api_messages: SavedMessages,
    #[serde(borrow, rename = "_message_times")]
    times: Option<&'a RawValue>,
}

/// A line of a journal.
#[derive(Deserialize)]
struct Record<'a> {
    /// The kind: `open`, `msg` or `meta`.
    k: String,
    /// The version.
    v: u64,
    generation: Option<String>,
    /// The index of the message.
    i: Option<usize>,
    #[serde(borrow)]
    m: Option<&'a RawValue>,
    #[serde(borrow)]
    at: Option<&'a RawValue>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

/// `ID.turn`.
#[derive(Deserialize)]
struct Draft {
    /// How many messages come before the answer.
    base_len: usize,
    #[serde(default)]
    partial_text: String,
}

impl SavedSession {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Parses the files of the session `id`.
    pub(super) fn parse(
        id: &str,
        snapshot: &[u8],
        journal: Option<&[u8]>,
        draft: Option<&[u8]>,
    ) -> anyhow::Result<Self> {
        let text = std::str::from_utf8(snapshot).context("it is not UTF-8")?;
        let mut meta: Meta = serde_json::from_str(text)?;
        let file: Snapshot<'_> = serde_json::from_str(text)?;
        let mut read = file.api_messages;
        let mut times = file.times.map(|times| message_times(times, read.messages.len())).unwrap_or_default();
        if let Some(journal) = journal {
            replay(journal, file.generation.as_deref(), &mut read, &mut times, &mut meta);
        }
        if read.messages.is_empty() && read.skipped > 0 {
            bail!("it has no message that can be read");
        }
        let draft = draft.and_then(|draft| serde_json::from_slice::<Draft>(draft).ok());
        let draft = draft.filter(|draft| draft.base_len == read.messages.len());
        Ok(Self {
            id: id.to_owned(),
            title: meta.title,
            model: meta.model,
            thinking_level: meta.thinking_level,
            created: meta.created_at,
            updated: meta.updated_at,
            usage: Usage {
                input_tokens: meta.total_input_tokens,
                output_tokens: meta.total_output_tokens,
                cache_read_tokens: file.total_cache_read_tokens,
                cache_write_tokens: file.total_cache_creation_tokens,
                // A negative number or one that is too large becomes the nearest one that fits.
                cost_micros: (meta.session_cost * 1_000_000.0).round() as u64,
            },
            compacted_into: meta.compacted_into,
            messages: read.messages,
            skipped: read.skipped,
            times,
            interrupted_text: draft.map(|draft| draft.partial_text),
        })
    }
}

/// Adds the messages of a journal that belongs to the snapshot. Ends at the first line that does not fit, as `synaps` does:
/// it was cut off when the program died.
fn replay(
    journal: &[u8],
    generation: Option<&str>,
    read: &mut SavedMessages,
    times: &mut BTreeMap<usize, Timestamp>,
    meta: &mut Meta,
) {
    let text = String::from_utf8_lossy(journal);
    let mut records = text.lines().map_while(|line| serde_json::from_str::<Record<'_>>(line).ok());
    let Some(open) = records.next() else { return };
    let belongs = open.k == "open"
        && JOURNAL_VERSIONS.contains(&open.v)
        && open.generation.as_deref() == generation
        && (open.v == 1) == generation.is_none();
    if !belongs {
        return;
    }
    for record in records.take_while(|record| record.v == open.v) {
        match (record.k.as_str(), record.m, record.meta) {
            ("msg", Some(message), _) => {
                let next = read.messages.len();
                match record.i {
                    Some(index) if index == next => {
                        read.push(message);
                        times.extend(record.at.and_then(message_time).map(|at| (index, at)));
                    }
                    // The snapshot has this message already.
                    Some(index) if index < next => {}
                    Some(_) | None => return,
                }
            }
            ("meta", _, Some(later)) => {
                let Ok(later) = serde_json::from_str::<Meta>(later.get()) else { return };
                if later.updated_at >= meta.updated_at {
                    *meta = later;
                }
            }
            _ => return,
        }
    }
}

/// The times of messages: pairs of an index and a time. Pairs of another form are left out.
fn message_times(raw: &RawValue, messages: usize) -> BTreeMap<usize, Timestamp> {
    // Longer than all pairs could be: parsing it would need much more memory than the file.
    if raw.get().len() > MESSAGE_TIME_BYTES.saturating_mul(messages + 1) {
        return BTreeMap::new();
    }
    let pairs: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let pair = |raw: &RawValue| {
        let (index, at): (usize, &RawValue) = serde_json::from_str(raw.get()).ok()?;
        Some((index, message_time(at)?))
    };
    pairs.into_iter().filter_map(pair).collect()
}

fn message_time(raw: &RawValue) -> Option<Timestamp> {
    time(&mut serde_json::Deserializer::from_str(raw.get())).ok()
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    let at = DateTime::parse_from_rfc3339(&text).map_err(serde::de::Error::custom)?;
    Ok(Timestamp(at.timestamp_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = r#"{"_journal_generation":"g","id":"x","title":"T","model":"m","thinking_level":"high","system_prompt":null,
        "created_at":"2026-03-01T10:15:02Z","updated_at":"2026-03-01T10:16:00Z","total_input_tokens":5,"total_output_tokens":7,
        "session_cost":0.25,"message_count":1,"api_messages":[{"role":"user","content":"one"}],
        "_message_times":[[0,"2026-03-01T10:15:30Z"],["x",1],[1],2]}"#;

    fn parse(snapshot: &str, journal: Option<&str>, draft: Option<&str>) -> anyhow::Result<SavedSession> {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        let (journal, draft) = (bytes(journal), bytes(draft));
        SavedSession::parse("x", snapshot.as_bytes(), journal.as_deref(), draft.as_deref())
    }

    #[test]
    fn a_journal_continues_the_snapshot_of_its_generation_up_to_a_torn_line() {
        let journal = "{\"k\":\"open\",\"v\":2,\"base\":1,\"generation\":\"g\"}\n\
            {\"k\":\"msg\",\"v\":2,\"i\":0,\"m\":{\"role\":\"user\",\"content\":\"again\"}}\n\
            {\"k\":\"msg\",\"v\":2,\"i\":1,\"m\":{\"role\":\"assistant\",\"content\":\"two\"},\"at\":\"2026-03-01T10:17:00Z\"}\n\
            {\"k\":\"meta\",\"v\":2,\"meta\":{\"id\":\"x\",\"title\":\"T2\",\"model\":\"m2\",\"created_at\":\"2026-03-01T10:15:02Z\",\
            \"updated_at\":\"2026-03-01T10:18:00Z\",\"total_input_tokens\":9}}\n\
            {\"k\":\"msg\",\"v\":2,\"i\":2,\"m\":{\"role\":\"user\",\"con";
        let draft = "{\"base_len\":2,\"partial_text\":\"half\"}";
        let saved = parse(SNAPSHOT, Some(journal), Some(draft)).unwrap();
        assert_eq!((saved.messages.len(), saved.skipped, saved.times.len()), (2, 0, 2));
        assert_eq!((saved.title.as_str(), saved.model.as_str(), saved.usage.input_tokens), ("T2", "m2", 9));
        assert_eq!(saved.interrupted_text.as_deref(), Some("half"));
        let other = journal.replace("\"g\"", "\"other\"");
        let saved = parse(SNAPSHOT, Some(&other), Some(draft)).unwrap();
        assert_eq!(
            (saved.messages.len(), saved.interrupted_text),
            (1, None),
            "a journal of another snapshot"
        );
        assert_eq!((saved.usage.cost_micros, saved.thinking_level.as_str()), (250_000, "high"));
    }

    #[test]
    fn wrong_types_are_errors_that_name_the_place() {
        let error =
            |from: &str, to: &str| parse(&SNAPSHOT.replace(from, to), None, None).unwrap_err().to_string();
        assert!(error("\"model\":\"m\"", "\"model\":7").contains("expected a string"));
        assert!(error("\"total_input_tokens\":5", "\"total_input_tokens\":-5").contains("expected u64"));
        assert!(
            error("[{\"role\":\"user\",\"content\":\"one\"}]", "{}")
                .contains("expected an array of messages")
        );
        assert!(error("2026-03-01T10:15:02Z", "yesterday").contains("line 2"));
        assert!(parse("", None, None).is_err() && parse("[]", None, None).is_err());
        assert!(SavedSession::parse("x", b"\xff", None, None).unwrap_err().to_string().contains("UTF-8"));
        let negative = parse(&SNAPSHOT.replace("0.25", "-1e300"), None, None).unwrap();
        assert_eq!(negative.usage.cost_micros, 0);
    }
}
