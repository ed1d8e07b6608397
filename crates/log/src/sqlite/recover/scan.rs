//! What a damaged database still has, page by page.
//!
//! Every page that holds rows is looked at, whether or not a way leads to it from the top of its table: one damaged
//! page at the top would hide all others. Which table a row belongs to is told by its columns.

use std::collections::{BTreeMap, HashMap};

use super::super::work::SPAN;
use super::cells::{Kind, Row, RowPage, Value};
use super::pages::Pages;

/// All that was found. Events stay where they are, since they may be more than fits into memory.
#[derive(Default)]
pub(super) struct Found {
    /// The pages of events with their first place, in order of it.
    pub(super) events: Vec<(i64, u32)>,
    /// Fresh events by their place: the page, and which row on it.
    pub(super) fresh: BTreeMap<i64, (u32, usize)>,
    /// The sessions by their key.
    pub(super) sessions: HashMap<i64, Named>,
    /// What was used: day, model and the counts.
    pub(super) usage: Vec<(i64, String, [i64; 7])>,
}

/// What is known of a session without its events.
pub(super) struct Named {
    pub(super) id: String,
    /// How many events it had; not known if only an index has it.
    pub(super) head: Option<u64>,
}

/// An event as it was found.
pub(super) struct FoundEvent {
    pub(super) place: i64,
    pub(super) id: String,
    pub(super) at: i64,
    pub(super) version: i64,
    pub(super) body: String,
}

/// Looks at all pages. `tell` hears of each.
pub(super) fn scan(pages: &Pages, mut tell: impl FnMut(u32)) -> Found {
    let mut found = Found::default();
    let mut indexed = Vec::new();
    for number in pages.numbers() {
        tell(number);
        let Some(page) = RowPage::read(pages, number) else { continue };
        let mut first_event = None;
        for index in 0..page.len() {
            let Some(row) = page.row(pages, index) else { continue };
            match page.kind() {
                Kind::Table => {
                    if is_event(&row) {
                        first_event = first_event.or(Some(row.number));
                    } else if let Some(place) = fresh_place(&row) {
                        found.fresh.insert(place, (number, index));
                    } else if let Some((key, named)) = session(&row) {
                        found.sessions.insert(key, named);
                    }
                }
                Kind::Index | Kind::UpperIndex => {
                    found.usage.extend(usage(&row));
                    indexed.extend(indexed_session(&row));
                }
            }
        }
        found.events.extend(first_event.map(|place| (place, number)));
    }
    found.events.sort_unstable();
    for (key, id) in indexed {
        found.sessions.entry(key).or_insert(Named { id, head: None });
    }
    found
}

/// The event in a row of one of the two tables of events.
pub(super) fn event(row: Row) -> Option<FoundEvent> {
    let number = row.number;
    let mut columns = row.columns.into_iter();
    let place = match columns.next()? {
        Value::Null if columns.len() == 4 => number,
        Value::Null if columns.len() == 5 => match columns.next()? {
            Value::Int(place) => place,
            Value::Null | Value::Text(_) | Value::Other => return None,
        },
        Value::Null | Value::Int(_) | Value::Text(_) | Value::Other => return None,
    };
    match [columns.next()?, columns.next()?, columns.next()?, columns.next()?] {
        [Value::Text(id), Value::Int(at), Value::Int(version), Value::Text(body)] if place > SPAN => {
            Some(FoundEvent { place, id, at, version, body })
        }
        _ => None,
    }
}

fn is_event(row: &Row) -> bool {
    use Value::{Int, Null, Text};
    row.number > SPAN && matches!(row.columns[..], [Null, Text(_), Int(_), Int(_), Text(_)])
}

fn fresh_place(row: &Row) -> Option<i64> {
    use Value::{Int, Null, Text};
    match row.columns[..] {
        [Null, Int(place), Text(_), Int(_), Int(_), Text(_)] if place > SPAN => Some(place),
        _ => None,
    }
}

fn session(row: &Row) -> Option<(i64, Named)> {
    use Value::{Int, Null, Text};
    match &row.columns[..] {
        [Null, Text(id), _, Text(_), _, Int(_), Int(_), Int(head), Int(_), Int(_), _] => {
            Some((row.number, Named { id: id.clone(), head: u64::try_from(*head).ok() }))
        }
        _ => None,
    }
}

/// A session in one of the two indexes: by its id, or by its last use.
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
