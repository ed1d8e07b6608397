//! What a backup has: a manifest, the database, and those parts of the state folder that are worth keeping.

use serde::{Deserialize, Serialize};

use crate::settings;

/// The format of backups that this version writes, and the newest that it reads.
pub(crate) const BACKUP_FORMAT: u32 = 1;

/// The first file of a backup.
pub(super) const MANIFEST: &str = "parlor-backup.json";

/// The database, in the state folder and in a backup.
pub(super) const DATABASE: &str = "parlor.db";

/// The folder of attached files.
pub(super) const MEDIA: &str = "media";

/// What a backup says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of parlor that made the backup.
    pub(super) parlor: String,
    /// When it was made.
    pub(super) made: String,
    /// Whether it has keys, logins and the token.
    pub(super) secrets: bool,
}

/// A file or folder of the state folder.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) kind: PartKind,
    /// Whether only `--with-secrets` puts it into the backup.
    pub(super) is_secret: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    File,
    Folder,
}

/// The parts beside the database, in the order of the backup. They come after the database, so that no event lacks its
/// attached file.
pub(super) const PARTS: [Part; 8] = [
    Part { name: settings::FILE, kind: PartKind::File, is_secret: false },
    Part { name: "loaf.json", kind: PartKind::File, is_secret: false },
    Part { name: "history", kind: PartKind::File, is_secret: false },
    Part { name: "AGENTS.md", kind: PartKind::File, is_secret: false },
    Part { name: "skills", kind: PartKind::Folder, is_secret: false },
    Part { name: MEDIA, kind: PartKind::Folder, is_secret: false },
    Part { name: "supr.json", kind: PartKind::File, is_secret: true },
    Part { name: "secrets", kind: PartKind::Folder, is_secret: true },
];
