//! The stored form of an event: JSON in a compact form (`compact.rs`), with a version number. Version 1 is the JSON as it is.
//!
//! The types of this module define the form on disk and nothing else, so that renames in `vocab` do not change it.
//! `golden.txt` pins the JSON, and `golden_2.txt` its compact form. A released version never changes; an event that does not fit into it needs a new version
//! with types of its own, and parlor goes on reading the old one.

mod compact;
mod parts;
mod question;
mod run;
#[cfg(test)]
pub(crate) mod samples;
mod session;
mod snapshot;
mod tool_details;

use parlor_vocab::{IdError, RunId, SessionEvent};

use session::EventRow;
pub(crate) use snapshot::{SNAPSHOT_VERSION, decode_snapshot, encode_snapshot};

/// The version of stored events that parlor writes.
pub const ROW_VERSION: i64 = 2;

/// The version whose rows are JSON as it is.
const JSON_VERSION: i64 = 1;

/// The stored form of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) version: i64,
    pub(crate) body: String,
}

impl Row {
    /// About how many bytes the event takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        compact::json_bytes(&self.body)
    }
}

/// Why a stored form cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowError {
    #[error("its version is {0}")]
    Version(i64),
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    #[error("{0}")]
    Id(#[from] IdError),
    #[error("{0}")]
    Compact(#[from] compact::Damaged),
    #[error("its folder is not written in hexadecimal digits")]
    Folder,
}

/// Encodes an event in the current version.
pub(crate) fn encode(event: &SessionEvent) -> Row {
    Row { version: ROW_VERSION, body: compact::compact(&encode_json(event)) }
}

/// The JSON of an event.
pub(crate) fn encode_json(event: &SessionEvent) -> String {
    serde_json::to_string(&EventRow::from(event)).expect("rows have string keys and no failing serializer")
}

/// Decodes one event.
#[cfg(test)]
pub(crate) fn decode(version: i64, body: &str) -> Result<SessionEvent, RowError> {
    Decoder::default().decode(version, body)
}

/// Decodes events one after another. Consecutive events of one run share the allocation of its id.
#[derive(Default)]
pub(crate) struct Decoder {
    run: Option<RunId>,
    json_bytes: usize,
}

impl Decoder {
    /// Decodes one event.
    pub(crate) fn decode(&mut self, version: i64, body: &str) -> Result<SessionEvent, RowError> {
        match version {
            ROW_VERSION => self.decode_json(&compact::expand(body)?),
            JSON_VERSION => self.decode_json(body),
            other => Err(RowError::Version(other)),
        }
    }

    /// The length of the last event's JSON, of which a deflated row is a small part: what it takes in memory.
    pub(crate) fn json_bytes(&self) -> usize {
        self.json_bytes
    }

    fn decode_json(&mut self, json: &str) -> Result<SessionEvent, RowError> {
        self.json_bytes = json.len();
        serde_json::from_str::<EventRow<'_>>(json)?.into_event(self)
    }

    /// Parses a run id, or clones the last one if it is the same.
    fn run(&mut self, id: &str) -> Result<RunId, IdError> {
        if let Some(run) = self.run.as_ref().filter(|run| run.as_str() == id) {
            return Ok(run.clone());
        }
        Ok(self.run.insert(RunId::parse(id)?).clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One line for each event of [`samples::all`]. Never change a line: existing databases contain this form. Make a
    /// new version instead.
    const GOLDEN: &str = include_str!("golden.txt");

    /// The compact forms of the same events, with escaped control characters. All are too short to be deflated.
    const GOLDEN_2: &str = include_str!("golden_2.txt");

    #[test]
    fn the_stored_form_of_every_event_is_pinned() {
        for (event, line) in samples::all().iter().zip(GOLDEN.lines()) {
            assert_eq!(encode_json(event), line);
        }
        assert_eq!(samples::all().len(), GOLDEN.lines().count());
    }

    #[test]
    fn the_compact_form_of_every_event_is_pinned() {
        let written: Vec<_> =
            samples::all().iter().map(|event| encode(event).body.escape_debug().to_string()).collect();
        assert_eq!(written, GOLDEN_2.lines().collect::<Vec<_>>(), "{}", written.join("\n"));
    }

    #[test]
    fn every_pinned_form_can_be_read() {
        let events: Vec<_> = GOLDEN.lines().map(|line| decode(1, line).unwrap()).collect();
        assert_eq!(events, samples::all());
    }

    #[test]
    fn the_samples_contain_every_variant() {
        let names: std::collections::BTreeSet<_> = samples::all().iter().map(samples::name).collect();
        assert_eq!(names.len(), samples::VARIANTS, "{names:?}");
    }

    #[test]
    fn unknown_versions_and_malformed_rows_are_refused() {
        let good = encode(&SessionEvent::Cleared).body;
        assert!(matches!(decode(3, &good), Err(RowError::Version(3))));
        assert!(matches!(decode(2, "\u{1}"), Err(RowError::Compact(_))));
        assert!(matches!(decode(1, "{\"born\":{}}"), Err(RowError::Form(_))));
        assert!(matches!(decode(1, "{\"renamed\":{\"title\":"), Err(RowError::Form(_))));
        let long = format!("{{\"unqueued\":{{\"runs\":[\"{}\"]}}}}", "x".repeat(2000));
        assert!(matches!(decode(1, &long), Err(RowError::Id(_))));
        let folder = "{\"created\":{\"door\":\"d\",\"folder\":{\"hex\":\"2fz\"}}}";
        assert!(matches!(decode(1, folder), Err(RowError::Folder)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn every_event_is_decoded_as_it_was_encoded(event in samples::any_event()) {
            let row = encode(&event);
            prop_assert_eq!(decode(row.version, &row.body).unwrap(), event);
        }

        #[test]
        fn no_text_makes_the_decoder_panic(text in ".{0,64}") {
            let _ = (decode(1, &text), decode(2, &text));
        }
    }
}
