//! What is under a name: nothing, a file, a folder, a symbolic link. Also the stored form of these states.

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use crate::content::ContentId;

/// What is under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FileState {
    /// Nothing.
    Missing,
    /// A regular file.
    File {
        /// Its content.
        content: KeptContent,
        /// The size in bytes.
        size: u64,
        /// The permission bits. `None` if they were not known yet: then any fit.
        mode: Option<u32>,
    },
    /// A folder.
    Folder {
        /// The permission bits.
        mode: u32,
        /// Why parlor does not look into it, if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skipped: Option<NotKept>,
    },
    /// A symbolic link.
    Link {
        /// Where it points to; any bytes but NUL.
        #[serde(with = "path_text")]
        target: Vec<u8>,
    },
    /// A FIFO, a socket or a device.
    Special,
}

/// The content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptContent {
    /// It is kept under this id.
    Kept(ContentId),
    /// It is not kept; whether the file is still the same shows its identity.
    NotKept {
        /// The status of the file.
        identity: FileIdentity,
        /// Why.
        why: NotKept,
    },
}

/// Why a content is not kept, or a folder not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotKept {
    /// The file has more than [`KEPT_FILE_BYTES`](crate::KEPT_FILE_BYTES).
    TooLarge,
    /// The folder has more files, or more bytes, than are kept for a run.
    LimitReached,
    /// The system did not let parlor read it.
    Unreadable,
    /// A folder of a version control system, or of files that programs generate.
    Generated,
}

impl NotKept {
    /// The reason, to be read after "because".
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLarge => "it is larger than 4 MiB",
            Self::LimitReached => "the working folder has more files or bytes than parlor keeps for a run",
            Self::Unreadable => "parlor could not read it",
            Self::Generated => "parlor does not keep folders such as .git, node_modules and target",
        }
    }
}

/// The status of a file by which a change is noticed without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// Seconds and nanoseconds.
    pub(crate) modified: (i64, u64),
    /// Seconds and nanoseconds. Programs cannot set this time.
    pub(crate) changed: (i64, u64),
    pub(crate) links: u64,
}

impl FileIdentity {
    #[expect(
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
        reason = "the types of the fields differ between architectures; sizes and nanoseconds are not negative"
    )]
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            size: stat.st_size as u64,
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
            links: stat.st_nlink as u64,
        }
    }
}

impl FileState {
    /// Whether this is the state of a file that was found in the state `now` and with this identity.
    pub(crate) fn is_found(&self, now: &Self, identity: Option<FileIdentity>) -> bool {
        match (self, now, identity) {
            (
                Self::File { content: KeptContent::NotKept { why, .. }, .. },
                Self::File { content: KeptContent::Kept(_), size, mode },
                Some(identity),
            ) => {
                let content = KeptContent::NotKept { identity, why: *why };
                self.is_same(&Self::File { content, size: *size, mode: *mode })
            }
            _ => self.is_same(now),
        }
    }

    /// Whether a file in the state `other` needs nothing done to be in this state.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content, mode, .. }, Self::File { content: other, mode: other_mode, .. }) => {
                let same_mode = mode.zip(*other_mode).is_none_or(|(mode, other)| mode == other);
                content.is_same(other) && same_mode
            }
            // Of a folder that is not looked into only its existence counts.
            (Self::Folder { mode, skipped }, Self::Folder { mode: other, skipped: other_skipped }) => {
                skipped.is_some() || other_skipped.is_some() || mode == other
            }
            (
                Self::Missing | Self::File { .. } | Self::Folder { .. } | Self::Link { .. } | Self::Special,
                other,
            ) => self == other,
        }
    }
}

impl KeptContent {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kept(id), Self::Kept(other)) => id == other,
            (Self::NotKept { identity, .. }, Self::NotKept { identity: other, .. }) => {
                // A further hard link does not change the content, but changes this time.
                let content =
                    |identity: &FileIdentity| (identity.dev, identity.ino, identity.size, identity.modified);
                let is_linked = identity.links != other.links;
                content(identity) == content(other) && (is_linked || identity.changed == other.changed)
            }
            (Self::Kept(_), Self::NotKept { .. }) | (Self::NotKept { .. }, Self::Kept(_)) => false,
        }
    }
}

/// Paths are bytes, JSON is text. A path that is not UTF-8 is written as a NUL, which no path has, and hexadecimal digits.
pub(crate) mod path_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                serializer.serialize_str(&format!("\0{digits}"))
            }
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Some(digits) = text.strip_prefix('\0') else { return Ok(text.into_bytes()) };
        let pair = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
        bytes.ok_or_else(|| D::Error::custom("a path is not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf_8_are_stored_too() {
        for target in [&b"plain"[..], b"caf\xe9", b"\xff\xfe/x", b""] {
            let state = FileState::Link { target: target.to_vec() };
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<FileState>(&text).unwrap(), state, "{text}");
        }
    }
}
