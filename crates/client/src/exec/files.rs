//! The file methods of today's protocol, and whether the server is ready. Paths are absolute paths of the server's machine.

use std::path::{Path, PathBuf};

use parlor_doors::exec::{ByteChunk, method, path_from_uri, uri_from_path};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{ExecServerClient, ExecServerError};

/// What a server tells of a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecFileMetadata {
    /// Whether it is a folder, behind links.
    pub is_directory: bool,
    /// Whether it is a regular file, behind links.
    pub is_file: bool,
    /// Whether the path itself is a link.
    pub is_symlink: bool,
    /// The size in bytes.
    pub size: u64,
    /// Milliseconds since 1970; 0 if the server does not know it.
    pub modified_at_ms: i64,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecDirectoryEntry {
    /// The name in the folder.
    pub file_name: String,
    /// Whether it is a folder, behind links.
    pub is_directory: bool,
    /// Whether it is a regular file, behind links.
    pub is_file: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    data_base64: ByteChunk,
}

#[derive(Deserialize)]
struct Resolved {
    path: String,
}

#[derive(Deserialize)]
struct Listing {
    entries: Vec<ExecDirectoryEntry>,
}

#[derive(Deserialize)]
struct Status {
    status: String,
}

/// A missing file is [`ExecServerError::Refused`] with the code -32004.
impl ExecServerClient {
    /// Whether the server is ready to start processes.
    pub async fn is_ready(&self) -> Result<bool, ExecServerError> {
        let Status { status } = self.connection().call(method::STATUS, &Value::Null, None).await?;
        Ok(status == "ready")
    }

    /// Reads a whole file.
    pub async fn read_file(&self, path: &Path) -> Result<Vec<u8>, ExecServerError> {
        let params = json!({"path": uri_from_path(path)});
        let content: Content = self.connection().call(method::FS_READ_FILE, &params, None).await?;
        Ok(content.data_base64.0)
    }

    /// Creates a file or replaces its content. The folder must exist.
    pub async fn write_file(&self, path: &Path, bytes: Vec<u8>) -> Result<(), ExecServerError> {
        let params = json!({"path": uri_from_path(path), "dataBase64": ByteChunk(bytes)});
        self.done(method::FS_WRITE_FILE, &params).await
    }

    /// Creates a folder and its missing parents.
    pub async fn create_directory(&self, path: &Path) -> Result<(), ExecServerError> {
        self.done(method::FS_CREATE_DIRECTORY, &json!({"path": uri_from_path(path), "recursive": true})).await
    }

    /// Removes a file, a link, or an empty folder; with `recursive` also a folder with its content.
    pub async fn remove_file(&self, path: &Path, recursive: bool) -> Result<(), ExecServerError> {
        let params = json!({"path": uri_from_path(path), "recursive": recursive, "force": false});
        self.done(method::FS_REMOVE, &params).await
    }

    /// Copies a file or a link; with `recursive` also a folder.
    pub async fn copy_file(&self, from: &Path, to: &Path, recursive: bool) -> Result<(), ExecServerError> {
        let (source, destination) = (uri_from_path(from), uri_from_path(to));
        let params = json!({"sourcePath": source, "destinationPath": destination, "recursive": recursive});
        self.done(method::FS_COPY, &params).await
    }

    /// Describes a file.
    pub async fn file_metadata(&self, path: &Path) -> Result<ExecFileMetadata, ExecServerError> {
        self.connection().call(method::FS_GET_METADATA, &json!({"path": uri_from_path(path)}), None).await
    }

    /// Resolves all links of a path.
    pub async fn canonicalize(&self, path: &Path) -> Result<PathBuf, ExecServerError> {
        let params = json!({"path": uri_from_path(path)});
        let resolved: Resolved = self.connection().call(method::FS_CANONICALIZE, &params, None).await?;
        path_from_uri(&resolved.path)
            .ok_or_else(|| ExecServerError::Protocol("a path is no `file:` URI of this system".to_owned()))
    }

    /// Lists a folder, in no order.
    pub async fn read_directory(&self, path: &Path) -> Result<Vec<ExecDirectoryEntry>, ExecServerError> {
        let params = json!({"path": uri_from_path(path)});
        let listing: Listing = self.connection().call(method::FS_READ_DIRECTORY, &params, None).await?;
        Ok(listing.entries)
    }

    async fn done(&self, method: &str, params: &Value) -> Result<(), ExecServerError> {
        self.connection().call::<Map<String, Value>>(method, params, None).await.map(drop)
    }
}
