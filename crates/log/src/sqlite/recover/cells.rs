//! Decodes the rows (SQLite: cells) of one page, as far as they are readable.

use super::bytes::{u16_at, u32_at, varint};
use super::pages::Pages;

/// No table of parlor has more columns than this.
const MAX_COLUMNS: usize = 16;

/// A page with rows.
pub(super) struct RowPage {
    bytes: Vec<u8>,
    kind: PageKind,
    /// The offset of the page header: after the file header on the first page, otherwise 0.
    header: usize,
}

/// The b-tree page types that contain rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// A leaf of a table with row ids.
    Table,
    /// A leaf of an index, or of a table without row ids.
    Index,
    /// An interior page of an index, which contains rows as well.
    InteriorIndex,
}

/// A row of a table or an index.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// The row id; 0 in an index.
    pub(super) rowid: i64,
    pub(super) columns: Vec<Value>,
}

/// The value of a column. `Other` stands for types that parlor does not store.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Other,
}

impl RowPage {
    /// Reads a page. `None` if it contains no rows.
    pub(super) fn read(pages: &Pages, number: u32) -> Option<Self> {
        let bytes = pages.read(number)?;
        let header = if number == 1 { 100 } else { 0 };
        let kind = match bytes.get(header)? {
            0x0d => PageKind::Table,
            0x0a => PageKind::Index,
            0x02 => PageKind::InteriorIndex,
            _ => return None,
        };
        Some(Self { bytes, kind, header })
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }

    /// The number of rows according to the page header, limited to what fits on a page.
    pub(super) fn len(&self) -> usize {
        usize::from(u16_at(&self.bytes, self.header + 3)).min(self.bytes.len() / 4)
    }

    /// Decodes a row. `None` if it is damaged.
    pub(super) fn row(&self, pages: &Pages, index: usize) -> Option<Row> {
        let pointers = self.header + if self.kind == PageKind::InteriorIndex { 12 } else { 8 };
        let offset = usize::from(u16_at(&self.bytes, pointers + 2 * index));
        if offset < pointers + 2 * self.len() {
            return None;
        }
        let mut cell = self.bytes.get(offset..pages.usable())?;
        if self.kind == PageKind::InteriorIndex {
            cell = cell.get(4..)?;
        }
        let (size, taken) = varint(cell)?;
        cell = cell.get(taken..)?;
        let mut rowid = 0;
        if self.kind == PageKind::Table {
            let (found, taken) = varint(cell)?;
            rowid = found as i64;
            cell = cell.get(taken..)?;
        }
        let payload = self.payload(pages, cell, usize::try_from(size).ok()?)?;
        Some(Row { rowid, columns: columns(&payload)? })
    }

    /// The bytes of a row: those on this page and, if it is long, those on its overflow pages.
    fn payload(&self, pages: &Pages, cell: &[u8], size: usize) -> Option<Vec<u8>> {
        let usable = pages.usable();
        let least = (usable - 12) * 32 / 255 - 23;
        let most = if self.kind == PageKind::Table { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        if size <= most {
            return cell.get(..size).map(<[u8]>::to_vec);
        }
        // No row is longer than the whole file; a larger size is damage.
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

/// Decodes the columns of a row.
fn columns(payload: &[u8]) -> Option<Vec<Value>> {
    let (size, mut offset) = varint(payload)?;
    let size = usize::try_from(size).ok()?;
    let mut body = payload.get(size..)?;
    let mut columns = Vec::new();
    while offset < size && columns.len() < MAX_COLUMNS {
        let (kind, taken) = varint(payload.get(offset..size)?)?;
        offset += taken;
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
    // Bytes left over belong to no column, so the row is damaged.
    (offset == size && body.is_empty()).then_some(columns)
}

/// Decodes a signed big-endian number of up to eight bytes.
fn integer(bytes: &[u8]) -> i64 {
    let start = if bytes.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    bytes.iter().fold(start, |number, byte| number << 8 | i64::from(*byte))
}
