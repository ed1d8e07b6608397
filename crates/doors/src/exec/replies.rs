//! Writes the answers to today's methods.

use std::path::{Path, PathBuf};

use parlor_vocab::{
    EnvironmentInfo, FileReply, ListedFile, OutputPage, OutputStream, ProcessId, SequencedChunk, WalkedTree,
    WriteOutcome,
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::wire::PROTOCOL_VERSION;
use super::{code, encode, uri};
use crate::jsonrpc::{self, RequestId};

/// The result of `initialize` for a client that asked for a session.
pub(super) fn initialized(info: &EnvironmentInfo) -> Value {
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "sessionId": info.session,
        "environmentInfo": environment(info),
    })
}

pub(super) fn environment(info: &EnvironmentInfo) -> Value {
    let path_uri = |path: &Path| uri::from_path(path);
    let mut value = json!({
        "shell": {"name": info.shell_name, "path": info.shell_path},
        "platformOs": "linux",
        "tempDir": path_uri(&info.temporary_folder),
        "capabilities": {},
    });
    for (name, path) in [("cwd", &info.folder), ("userHomeDir", &info.home)] {
        if let Some(path) = path {
            value[name] = path_uri(path).into();
        }
    }
    value
}

pub(super) fn started(process: Option<&ProcessId>, is_sandboxed: bool) -> Value {
    let kind = if is_sandboxed { "linuxSeccomp" } else { "none" };
    json!({"processId": process.map(ProcessId::as_str), "sandboxType": kind})
}

pub(super) fn write(outcome: WriteOutcome) -> Value {
    let status = match outcome {
        WriteOutcome::Accepted => "accepted",
        WriteOutcome::UnknownProcess => "unknownProcess",
        WriteOutcome::StdinClosed => "stdinClosed",
    };
    json!({"status": status})
}

pub(super) fn output(page: &OutputPage) -> impl Serialize + '_ {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        chunks: Items<'a, SequencedChunk>,
        next_seq: u64,
        exited: bool,
        exit_code: Option<i32>,
        closed: bool,
        failure: Option<()>,
        sandbox_denied: bool,
    }
    Page {
        chunks: Items(&page.chunks, |chunk| {
            let bytes = base64_simd::STANDARD.encode_to_string(&*chunk.bytes);
            json!({"seq": chunk.seq, "stream": stream_name(chunk.stream), "chunk": bytes})
        }),
        next_seq: page.next_seq,
        exited: page.ending.is_some(),
        exit_code: page.ending.map(code::exit_code),
        closed: page.is_closed,
        failure: None,
        sandbox_denied: page.is_denied,
    }
}

/// Writes one item after another, so that a long list is never held as JSON values.
struct Items<'a, T>(&'a [T], fn(&T) -> Value);

impl<T> Serialize for Items<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

pub(super) fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
        OutputStream::Terminal => "pty",
    }
}

/// The answer to a file request.
pub(super) fn file(id: &RequestId, reply: &FileReply) -> Vec<u8> {
    match reply {
        FileReply::Done => jsonrpc::result(id, &json!({})),
        FileReply::Opened(handle) => jsonrpc::result(id, &json!({"handleId": handle})),
        FileReply::Block { bytes, is_end } => {
            let chunk = base64_simd::STANDARD.encode_to_string(bytes);
            jsonrpc::result(id, &json!({"chunk": chunk, "eof": is_end}))
        }
        FileReply::Content(bytes) => encode::file_content(id, bytes),
        FileReply::Described(facts) => jsonrpc::result(
            id,
            &json!({
                "isDirectory": facts.is_folder,
                "isFile": facts.is_file,
                "isSymlink": facts.is_link,
                "size": facts.size,
                "createdAtMs": facts.created_ms,
                "modifiedAtMs": facts.modified_ms,
            }),
        ),
        FileReply::Resolved(path) => jsonrpc::result(id, &json!({"path": uri::from_path(path)})),
        FileReply::Listed(files) => jsonrpc::result(id, &listing(files)),
        FileReply::Walked(tree) => jsonrpc::result(id, &walked(tree)),
    }
}

fn listing(files: &[ListedFile]) -> impl Serialize + '_ {
    #[derive(Serialize)]
    struct Listing<'a> {
        entries: Items<'a, ListedFile>,
    }
    Listing {
        entries: Items(
            files,
            |file| json!({"fileName": file.name, "isDirectory": file.is_folder, "isFile": file.is_file}),
        ),
    }
}

fn walked(tree: &WalkedTree) -> impl Serialize + '_ {
    #[derive(Serialize)]
    struct Walked<'a> {
        entries: Items<'a, (PathBuf, bool)>,
        errors: Items<'a, (PathBuf, String)>,
        truncated: bool,
    }
    Walked {
        entries: Items(
            &tree.entries,
            |(path, is_folder)| json!({"path": uri::from_path(path), "kind": if *is_folder { "directory" } else { "file" }}),
        ),
        errors: Items(&tree.errors, |(path, text)| json!({"path": uri::from_path(path), "message": text})),
        truncated: tree.is_truncated,
    }
}
