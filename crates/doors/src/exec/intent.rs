//! What a client of today's methods wants to be restricted (`sandbox`), resolved to rules for paths.
//!
//! The executor enforces rules that let everything be read, with exceptions. A client that wants anything else, such as
//! rules with patterns, is refused here: an intent is never ignored.

use std::path::{Component, Path, PathBuf};

use parlor_vocab::{PathAccess, PathRule, SandboxIntent};
use serde::Deserialize;

use super::bounded::Few;
use super::code::FrameError;
use super::uri;
use super::wire::MAX_SANDBOX_ENTRIES;

/// The member `sandbox` of params.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxParam {
    permissions: Permissions,
    // Not flattened, which would hold all other members in memory.
    cwd: Option<String>,
    workspace_roots: Option<Roots>,
    /// File methods have the folders here.
    policy_context: Option<Folders>,
}

type Roots = Few<String, MAX_SANDBOX_ENTRIES>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Folders {
    cwd: Option<String>,
    workspace_roots: Option<Roots>,
}

#[derive(Deserialize)]
struct Permissions {
    #[serde(rename = "type")]
    kind: String,
    file_system: Option<FileSystem>,
    network: Option<String>,
}

#[derive(Deserialize)]
struct FileSystem {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    entries: Few<RuleParam, MAX_SANDBOX_ENTRIES>,
}

#[derive(Deserialize)]
struct RuleParam {
    path: RulePath,
    access: String,
    missing_path_behavior: Option<String>,
}

/// Not an enum with a tag, which would hold all other members in memory.
#[derive(Deserialize)]
struct RulePath {
    /// Also kinds that cannot be enforced, such as `glob_pattern`.
    #[serde(rename = "type")]
    kind: String,
    path: Option<String>,
    value: Option<SpecialPath>,
}

#[derive(Deserialize)]
struct SpecialPath {
    kind: String,
    subpath: Option<String>,
}

impl SandboxParam {
    /// The restrictions of a process; `None` if it has none.
    pub(super) fn for_process(&self) -> Result<Option<SandboxIntent>, FrameError> {
        match self.permissions.kind.as_str() {
            "disabled" => Ok(None),
            "managed" => self.rules().map(Some),
            _ => Err(FrameError::SandboxRefused),
        }
    }

    /// The restrictions of a file access; `None` if it has none.
    pub(super) fn for_files(&self) -> Result<Option<SandboxIntent>, FrameError> {
        let files = self.permissions.file_system.as_ref();
        match self.permissions.kind.as_str() {
            "disabled" | "external" => Ok(None),
            "managed" if files.is_some_and(|files| files.kind == "unrestricted") => Ok(None),
            "managed" => self.rules().map(Some),
            _ => Err(FrameError::SandboxRefused),
        }
    }

    fn rules(&self) -> Result<SandboxIntent, FrameError> {
        let files = self.permissions.file_system.as_ref().filter(|files| files.kind == "restricted");
        let entries = &files.ok_or(FrameError::SandboxRefused)?.entries.0;
        let roots = self.workspace_roots()?;
        let allows_network = match self.permissions.network.as_deref() {
            Some("enabled") => true,
            Some("restricted") => false,
            Some(_) | None => return Err(FrameError::SandboxRefused),
        };
        let mut rules = Vec::new();
        for entry in entries {
            let access = access(&entry.access)?;
            let skips_missing = entry.missing_path_behavior.as_deref() == Some("skip");
            let rule = |path| PathRule { path, access, skips_missing };
            rules.extend(paths(&entry.path, &roots)?.into_iter().map(rule));
        }
        let context = self.policy_context.as_ref().and_then(|context| context.cwd.as_deref());
        let cwd = context.or(self.cwd.as_deref()).map(absolute).transpose()?;
        let project = roots.into_iter().next().or(cwd).ok_or(FrameError::SandboxRefused)?;
        Ok(SandboxIntent { rules, project, allows_network })
    }

    fn workspace_roots(&self) -> Result<Vec<PathBuf>, FrameError> {
        let context = self.policy_context.as_ref().and_then(|context| context.workspace_roots.as_ref());
        let roots = context.or(self.workspace_roots.as_ref());
        roots.into_iter().flat_map(|roots| &roots.0).map(|root| absolute(root)).collect()
    }
}

fn access(name: &str) -> Result<PathAccess, FrameError> {
    match name {
        "deny" | "none" => Ok(PathAccess::Denied),
        "read" => Ok(PathAccess::Read),
        "write" => Ok(PathAccess::Write),
        _ => Err(FrameError::SandboxRefused),
    }
}

/// The paths that an entry is about.
fn paths(path: &RulePath, roots: &[PathBuf]) -> Result<Vec<PathBuf>, FrameError> {
    let special = match (path.kind.as_str(), &path.path, &path.value) {
        ("path", Some(path), _) => return Ok(vec![absolute(path)?]),
        ("special", _, Some(value)) => value,
        _ => return Err(FrameError::SandboxRefused),
    };
    match (special.kind.as_str(), special.subpath.as_deref()) {
        ("root", None) => Ok(vec![PathBuf::from("/")]),
        ("slash_tmp", None) => Ok(vec![PathBuf::from("/tmp")]),
        // A process has its variable TMPDIR set to a folder that it may write in any case.
        ("tmpdir", None) => Ok(Vec::new()),
        ("project_roots", None) => Ok(roots.to_vec()),
        ("project_roots", Some(below)) if is_plain(Path::new(below)) => {
            Ok(roots.iter().map(|root| root.join(below)).collect())
        }
        _ => Err(FrameError::SandboxRefused),
    }
}

/// A `file:` URI or an absolute path, as a path without `.` and `..`.
fn absolute(text: &str) -> Result<PathBuf, FrameError> {
    let path = match text.starts_with('/') {
        true => PathBuf::from(text),
        false => uri::to_path(text).map_err(|_| FrameError::SandboxRefused)?,
    };
    let is_resolved = path.is_absolute() && path.strip_prefix("/").is_ok_and(is_plain_or_empty);
    is_resolved.then_some(path).ok_or(FrameError::SandboxRefused)
}

fn is_plain_or_empty(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn is_plain(path: &Path) -> bool {
    path.components().next().is_some() && is_plain_or_empty(path)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decode(permissions: Value) -> Result<Option<SandboxIntent>, FrameError> {
        let param =
            json!({"permissions": permissions, "cwd": "file:///p/a", "workspaceRoots": ["file:///p"]});
        serde_json::from_value::<SandboxParam>(param).expect("the right shape").for_process()
    }

    fn restricted(entries: &Value) -> Value {
        json!({"type": "managed", "file_system": {"type": "restricted", "entries": entries}, "network": "restricted"})
    }

    fn special(kind: &str, subpath: Option<&str>, access: &str) -> Value {
        let value = json!({"kind": kind, "subpath": subpath});
        json!({"path": {"type": "special", "value": value}, "access": access, "missing_path_behavior": "skip"})
    }

    fn rule(path: &str, access: PathAccess) -> PathRule {
        PathRule { path: path.into(), access, skips_missing: true }
    }

    #[test]
    fn the_rules_of_the_real_client_become_paths() {
        let entries = json!([
            special("root", None, "read"),
            special("project_roots", None, "write"),
            special("slash_tmp", None, "write"),
            special("tmpdir", None, "write"),
            special("project_roots", Some(".git"), "read"),
            {"path": {"type": "path", "path": "/secret"}, "access": "deny"},
        ]);
        let intent = decode(restricted(&entries)).unwrap().unwrap();
        let (read, write) = (PathAccess::Read, PathAccess::Write);
        let rules = [rule("/", read), rule("/p", write), rule("/tmp", write), rule("/p/.git", read)];
        assert_eq!(intent.rules[..4], rules);
        let secret = PathRule { skips_missing: false, ..rule("/secret", PathAccess::Denied) };
        assert_eq!(intent.rules[4..], [secret]);
        assert_eq!((intent.project, intent.allows_network), ("/p".into(), false));
    }

    #[test]
    fn entries_and_folders_are_limited() {
        let entry = special("root", None, "read");
        let is_decoded = |entries: usize, roots: usize| {
            let param = json!({
                "permissions": restricted(&vec![entry.clone(); entries].into()), "cwd": "file:///",
                "workspaceRoots": vec!["file:///p"; roots],
            });
            serde_json::from_value::<SandboxParam>(param).is_ok_and(|param| param.for_process().is_ok())
        };
        assert!(is_decoded(MAX_SANDBOX_ENTRIES, MAX_SANDBOX_ENTRIES));
        assert!(!is_decoded(MAX_SANDBOX_ENTRIES + 1, 1) && !is_decoded(1, MAX_SANDBOX_ENTRIES + 1));
    }

    #[test]
    fn whatever_cannot_be_enforced_is_refused() {
        for permissions in [
            json!({"type": "external", "network": "restricted"}),
            json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}),
            json!({"type": "managed", "network": "restricted"}),
            json!({"type": "managed", "file_system": {"type": "restricted", "entries": []}, "network": "odd"}),
            json!({"type": "new"}),
            restricted(&json!([special("minimal", None, "read")])),
            restricted(&json!([special("root", Some("x"), "read")])),
            restricted(&json!([special("project_roots", Some("../x"), "write")])),
            restricted(&json!([special("project_roots", Some("/x"), "write")])),
            restricted(&json!([special("root", None, "execute")])),
            restricted(&json!([{"path": {"type": "glob_pattern", "pattern": "/**"}, "access": "read"}])),
            restricted(&json!([{"path": {"type": "path", "path": "x"}, "access": "read"}])),
            restricted(&json!([{"path": {"type": "path", "path": "/a/../b"}, "access": "write"}])),
        ] {
            assert!(matches!(decode(permissions.clone()), Err(FrameError::SandboxRefused)), "{permissions}");
        }
        assert!(matches!(decode(json!({"type": "disabled"})), Ok(None)));
    }
}
