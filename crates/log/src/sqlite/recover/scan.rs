//! Finds the readable rows of a damaged database, page by page.
//!
//! The scan reads every page with rows, and does not follow the b-trees: a damaged root page would hide all pages below
//! it. It recognizes the table of a row by its columns.

use std::collections::{BTreeMap, HashMap};

use super::super::request::PLACES_PER_SESSION;
use super::cells::{PageKind, Row, RowPage, Value};
use super::pages::Pages;

/// The found rows. Of events it has only the positions, since all events may not fit into memory.
#[derive(Default)]
pub(super) struct Found {
    /// The pages of the table `events`: the first `place` on the page and the page number, sorted.
    pub(super) events: Vec<(i64, u32)>,
    /// The rows of the table `fresh`: from `place` to page number and index on the page.
    pub(super) fresh: BTreeMap<i64, (u32, usize)>,
    /// The sessions by key.
    pub(super) sessions: HashMap<i64, FoundSession>,
    /// The rows of the table `usage`: day, model and counts.
    pub(super) usage: Vec<(i64, String, [i64; 7])>,
}

/// A row of the table `sessions`, or of one of its indexes.
pub(super) struct FoundSession {
    pub(super) id: String,
    /// The number of events; `None` if only an index has the session.
    pub(super) head: Option<u64>,
}

/// A row of the table `events` or `fresh`.
pub(super) struct FoundEvent {
    pub(super) place: i64,
    pub(super) id: String,
    pub(super) at: i64,
    pub(super) version: i64,
    pub(super) body: String,
}

/// Scans all pages. Calls `on_page` with each page number.
pub(super) fn scan(pages: &Pages, mut on_page: impl FnMut(u32)) -> Found {
    let mut found = Found::default();
    let mut indexed = Vec::new();
    for number in pages.numbers() {
        on_page(number);
        let Some(page) = RowPage::read(pages, number) else { continue };
        let mut first_event = None;
        for index in 0..page.len() {
            let Some(row) = page.row(pages, index) else { continue };
            match page.kind() {
                PageKind::Table => {
                    if is_event(&row) {
                        first_event = first_event.or(Some(row.rowid));
                    } else if let Some(place) = fresh_place(&row) {
                        found.fresh.insert(place, (number, index));
                    } else if let Some((key, session_row)) = session(&row) {
                        found.sessions.insert(key, session_row);
                    }
                }
                PageKind::Index | PageKind::InteriorIndex => {
                    found.usage.extend(usage(&row));
                    indexed.extend(indexed_session(&row));
                }
            }
        }
        found.events.extend(first_event.map(|place| (place, number)));
    }
    found.events.sort_unstable();
    for (key, id) in indexed {
        found.sessions.entry(key).or_insert(FoundSession { id, head: None });
    }
    found
}

/// Decodes a row of the table `events` or `fresh`.
pub(super) fn event(row: Row) -> Option<FoundEvent> {
    let rowid = row.rowid;
    let mut columns = row.columns.into_iter();
    let place = match columns.next()? {
        Value::Null if columns.len() == 4 => rowid,
        Value::Null if columns.len() == 5 => match columns.next()? {
            Value::Int(place) => place,
            Value::Null | Value::Text(_) | Value::Other => return None,
        },
        Value::Null | Value::Int(_) | Value::Text(_) | Value::Other => return None,
    };
    match [columns.next()?, columns.next()?, columns.next()?, columns.next()?] {
        [Value::Text(id), Value::Int(at), Value::Int(version), Value::Text(body)]
            if place > PLACES_PER_SESSION =>
        {
            Some(FoundEvent { place, id, at, version, body })
        }
        _ => None,
    }
}

fn is_event(row: &Row) -> bool {
    use Value::{Int, Null, Text};
    row.rowid > PLACES_PER_SESSION && matches!(row.columns[..], [Null, Text(_), Int(_), Int(_), Text(_)])
}

fn fresh_place(row: &Row) -> Option<i64> {
    use Value::{Int, Null, Text};
    match row.columns[..] {
        [Null, Int(place), Text(_), Int(_), Int(_), Text(_)] if place > PLACES_PER_SESSION => Some(place),
        _ => None,
    }
}

fn session(row: &Row) -> Option<(i64, FoundSession)> {
    use Value::{Int, Null, Text};
    match &row.columns[..] {
        [Null, Text(id), _, Text(_), _, Int(_), Int(_), Int(head), Int(_), Int(_), _] => {
            Some((row.rowid, FoundSession { id: id.clone(), head: u64::try_from(*head).ok() }))
        }
        _ => None,
    }
}

/// Decodes a row of one of the two indexes of `sessions`: by id, or by the last update.
fn indexed_session(row: &Row) -> Option<(i64, String)> {
    match &row.columns[..] {
        [Value::Text(id), Value::Int(key)] | [Value::Int(_), Value::Text(id), Value::Int(key)] => {
            Some((*key, id.clone()))
        }
        _ => None,
    }
}

fn usage(row: &Row) -> Option<(i64, String, [i64; 7])> {
    let [Value::Int(day), Value::Text(model), counts @ ..] = &row.columns[..] else { return None };
    let counts: Vec<i64> = counts
        .iter()
        .map(|count| match count {
            Value::Int(count) => Some(*count),
            Value::Null | Value::Text(_) | Value::Other => None,
        })
        .collect::<Option<_>>()?;
    Some((*day, model.clone(), counts.try_into().ok()?))
}
