//! The rows on one page, as far as they can be read.

use super::bytes::{u16_at, u32_at, varint};
use super::pages::Pages;

/// The most columns of any table here.
const MAX_COLUMNS: usize = 16;

/// A page that holds rows.
pub(super) struct RowPage {
    bytes: Vec<u8>,
    kind: Kind,
    /// Where its header begins: behind that of the file, on the first page.
    start: usize,
}

/// What is on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows of a table with numbers.
    Table,
    /// Rows of an index, or of a table without numbers.
    Index,
    /// The same, with the pages below.
    UpperIndex,
}

/// A row: its number in a table, and its columns.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) number: i64,
    pub(super) columns: Vec<Value>,
}

/// A value. What parlor does not store is none of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Other,
}

impl RowPage {
    /// The page, if it holds rows.
    pub(super) fn read(pages: &Pages, number: u32) -> Option<Self> {
        let bytes = pages.read(number)?;
        let start = if number == 1 { 100 } else { 0 };
        let kind = match bytes.get(start)? {
            0x0d => Kind::Table,
            0x0a => Kind::Index,
            0x02 => Kind::UpperIndex,
            _ => return None,
        };
        Some(Self { bytes, kind, start })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// How many rows it says to have.
    pub(super) fn len(&self) -> usize {
        usize::from(u16_at(&self.bytes, self.start + 3)).min(self.bytes.len() / 4)
    }

    /// A row, if it can be read.
    pub(super) fn row(&self, pages: &Pages, index: usize) -> Option<Row> {
        let pointers = self.start + if self.kind == Kind::UpperIndex { 12 } else { 8 };
        let place = usize::from(u16_at(&self.bytes, pointers + 2 * index));
        if place < pointers + 2 * self.len() {
            return None;
        }
        let mut cell = self.bytes.get(place..pages.usable())?;
        if self.kind == Kind::UpperIndex {
            cell = cell.get(4..)?;
        }
        let (size, taken) = varint(cell)?;
        cell = cell.get(taken..)?;
        let mut number = 0;
        if self.kind == Kind::Table {
            let (found, taken) = varint(cell)?;
            number = found as i64;
            cell = cell.get(taken..)?;
        }
        let payload = self.payload(pages, cell, usize::try_from(size).ok()?)?;
        Some(Row { number, columns: columns(&payload)? })
    }

    /// What belongs to a row: on this page, and on those that it goes on to if it is long.
    fn payload(&self, pages: &Pages, cell: &[u8], size: usize) -> Option<Vec<u8>> {
        let usable = pages.usable();
        let least = (usable - 12) * 32 / 255 - 23;
        let most = if self.kind == Kind::Table { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        if size <= most {
            return cell.get(..size).map(<[u8]>::to_vec);
        }
        // No row is longer than the whole file, whatever a damaged one says.
        if size / usable > pages.count() as usize {
            return None;
        }
        let local = least + (size - least) % (usable - 4);
        let local = if local <= most { local } else { least };
        let mut payload = cell.get(..local)?.to_vec();
        let mut next = u32_at(cell, local);
        while payload.len() < size {
            let page = pages.read(next)?;
            next = u32_at(&page, 0);
            let more = (size - payload.len()).min(usable - 4);
            payload.extend_from_slice(page.get(4..4 + more)?);
        }
        Some(payload)
    }
}

/// The columns of a row.
fn columns(payload: &[u8]) -> Option<Vec<Value>> {
    let (size, mut place) = varint(payload)?;
    let size = usize::try_from(size).ok()?;
    let mut body = payload.get(size..)?;
    let mut columns = Vec::new();
    while place < size && columns.len() < MAX_COLUMNS {
        let (kind, taken) = varint(payload.get(place..size)?)?;
        place += taken;
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            more => usize::try_from((more - 12) / 2).ok()?,
        };
        let (bytes, rest) = body.split_at_checked(length)?;
        body = rest;
        columns.push(match kind {
            0 => Value::Null,
            1..=6 => Value::Int(integer(bytes)),
            8 => Value::Int(0),
            9 => Value::Int(1),
            text if text >= 13 && text % 2 == 1 => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
            _ => Value::Other,
        });
    }
    // What is left over belongs to no column: then the row is not what it seems.
    (place == size && body.is_empty()).then_some(columns)
}

/// A number of up to eight bytes, the highest first, with its sign.
fn integer(bytes: &[u8]) -> i64 {
    let start = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(start, |number, byte| number << 8 | i64::from(*byte))
}
