//! Requests about files of the executor's machine.

use std::path::PathBuf;

/// Whether a path may lead through symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowLinks {
    /// Links are followed.
    Yes,
    /// A link anywhere in the path is refused.
    No,
}

/// What to do with files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Reads a whole file.
    Read {
        /// The file.
        path: PathBuf,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Creates a file or replaces its content.
    Write {
        /// The file.
        path: PathBuf,
        /// The new content.
        bytes: Vec<u8>,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Creates a folder.
    CreateFolder {
        /// The folder.
        path: PathBuf,
        /// Whether missing parents are created, and an existing folder is accepted.
        recursive: bool,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Describes a file.
    Describe {
        /// The file.
        path: PathBuf,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Resolves all links of a path.
    Canonicalize {
        /// The path.
        path: PathBuf,
    },
    /// Lists a folder.
    List {
        /// The folder.
        path: PathBuf,
    },
    /// Lists a tree of folders.
    Walk {
        /// The top of the tree.
        path: PathBuf,
        /// How far to go.
        options: WalkOptions,
    },
    /// Removes a file, a link or a folder.
    Remove {
        /// The file.
        path: PathBuf,
        /// Whether a folder is removed with its content.
        recursive: bool,
        /// Whether a missing file counts as removed.
        force: bool,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Opens a file for reads or writes of blocks.
    Open {
        /// The client's name for the open file.
        handle: String,
        /// The file.
        path: PathBuf,
        /// Whether it is created or emptied, to be written.
        replaces: bool,
        /// Whether links are followed.
        follow: FollowLinks,
    },
    /// Reads a block of an open file.
    ReadBlock {
        /// The open file.
        handle: String,
        /// Where the block begins.
        offset: u64,
        /// How many bytes to read at most.
        length: u64,
    },
    /// Writes a block of an open file.
    WriteBlock {
        /// The open file.
        handle: String,
        /// Where the block begins.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Closes an open file.
    Close {
        /// The open file.
        handle: String,
    },
    /// Copies a file, a link or a folder.
    Copy {
        /// What to copy.
        source: PathBuf,
        /// The path of the copy.
        destination: PathBuf,
        /// Whether a folder may be copied.
        recursive: bool,
    },
}

/// How far [`FileAction::Walk`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    /// How many folders below the top.
    pub max_depth: u64,
    /// How many folders to read, with the top.
    pub max_folders: u64,
    /// How many entries to look at.
    pub max_entries: u64,
    /// Whether links to folders are entered.
    pub follow_folder_links: bool,
    /// Whether folders whose names begin with a dot are listed but not entered.
    pub prune_hidden: bool,
}

/// The reply to an accepted [`FileAction`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileReply {
    /// The content of a file.
    Content(Vec<u8>),
    /// The request was carried out.
    Done,
    /// The file is open under this name.
    Opened(String),
    /// A block of an open file.
    Block {
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the file ends before the end of the block.
        is_end: bool,
    },
    /// A file.
    Described(FileFacts),
    /// The path without links.
    Resolved(PathBuf),
    /// The content of a folder.
    Listed(Vec<ListedFile>),
    /// A tree.
    Walked(WalkedTree),
}

/// What [`FileAction::Describe`] tells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Whether it is a folder, after links.
    pub is_folder: bool,
    /// Whether it is a regular file, after links.
    pub is_file: bool,
    /// Whether the path itself is a link.
    pub is_link: bool,
    /// In bytes.
    pub size: u64,
    /// In milliseconds since 1970; 0 if unknown.
    pub created_ms: u64,
    /// In milliseconds since 1970; 0 if unknown.
    pub modified_ms: u64,
}

/// An entry of a listed folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The name, without its folder.
    pub name: String,
    /// Whether it is a folder, after links.
    pub is_folder: bool,
    /// Whether it is a regular file, after links.
    pub is_file: bool,
}

/// What [`FileAction::Walk`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WalkedTree {
    /// Folders and files with whether each is a folder, without the top.
    pub entries: Vec<(PathBuf, bool)>,
    /// Folders that could not be read, with the reasons.
    pub errors: Vec<(PathBuf, String)>,
    /// Whether a limit ended the walk.
    pub is_truncated: bool,
}
