//! The machine of the executor: its shell, its folders, and the variables that processes inherit.

use std::path::{Path, PathBuf};

use parlor_vocab::{EnvironmentBase, EnvironmentInfo, EnvironmentPolicy};

/// The variables of [`EnvironmentBase::Core`].
const CORE: [&str; 11] =
    ["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"];

/// Patterns of variables that may hold secrets.
const SECRETS: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];

/// Credentials of the client's own server, which no process gets.
const NEVER: [&str; 6] = [
    "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "NODE_REPL_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
];

pub(super) fn describe(session: String) -> EnvironmentInfo {
    let home = own_variables().find(|(name, _)| name == "HOME").map(|(_, value)| PathBuf::from(value));
    let shell_of_user = own_variables().find(|(name, _)| name == "SHELL").map(|(_, value)| value);
    let (shell_name, shell_path) = shell(&shell_of_user.unwrap_or_default());
    EnvironmentInfo {
        session,
        shell_name,
        shell_path,
        folder: std::env::current_dir().ok(),
        home: home.filter(|home| home.is_absolute()),
        temporary_folder: Some(std::env::temp_dir())
            .filter(|folder| folder.is_absolute())
            .unwrap_or_else(|| PathBuf::from("/tmp")),
    }
}

/// The user's shell if clients know its kind; otherwise bash or sh.
fn shell(of_user: &str) -> (&'static str, String) {
    for path in [of_user, "/bin/bash"] {
        let file = Path::new(path).file_name();
        let known = ["bash", "zsh", "sh"].into_iter().find(|name| file == Some((*name).as_ref()));
        if let Some(name) = known.filter(|_| path.starts_with('/') && Path::new(path).exists()) {
            return (name, path.to_owned());
        }
    }
    ("sh", "/bin/sh".to_owned())
}

/// A random UUID of version 4.
pub(super) fn random_session_id() -> String {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            // Another id would be guessable, and whoever knows it can resume the session.
            Err(error) => panic!("getrandom failed: {error}"),
        }
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut id = String::with_capacity(36);
    for (number, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&number) {
            id.push('-');
        }
        id.push_str(&format!("{byte:02x}"));
    }
    id
}

/// The environment of a process: what `policy` leaves of the executor's, with `overlay` laid over it.
pub(super) fn variables(
    policy: Option<EnvironmentPolicy>,
    overlay: Vec<(String, String)>,
) -> Vec<(String, String)> {
    choose(own_variables(), policy, overlay)
}

/// The variables of this process, which its children may inherit. Those that are not UTF-8 are left out.
fn own_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()))
}

fn choose(
    own: impl Iterator<Item = (String, String)>,
    policy: Option<EnvironmentPolicy>,
    overlay: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = Vec::new();
    if let Some(policy) = policy {
        let matches =
            |patterns: &[String], name: &str| patterns.iter().any(|pattern| is_match(pattern, name));
        variables.extend(own.filter(|(name, _)| match policy.base {
            EnvironmentBase::All => true,
            EnvironmentBase::Core => CORE.iter().any(|core| core.eq_ignore_ascii_case(name)),
            EnvironmentBase::Empty => false,
        }));
        let is_secret = |name: &str| SECRETS.iter().any(|pattern| is_match(pattern, name));
        variables.retain(|(name, _)| policy.keep_secrets || !is_secret(name));
        variables.retain(|(name, _)| !matches(&policy.exclude, name));
        lay_over(&mut variables, policy.set);
        variables.retain(|(name, _)| policy.include_only.is_empty() || matches(&policy.include_only, name));
    }
    lay_over(&mut variables, overlay);
    variables.retain(|(name, _)| !NEVER.contains(&name.as_str()));
    variables
}

fn lay_over(variables: &mut Vec<(String, String)>, overlay: Vec<(String, String)>) {
    let names: std::collections::HashSet<&str> = overlay.iter().map(|(name, _)| name.as_str()).collect();
    variables.retain(|(name, _)| !names.contains(name.as_str()));
    variables.extend(overlay);
}

/// Whether a glob with `*` and `?` matches the whole name, without regard to case.
fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut in_name) = (0, 0);
    // Where to go on after a mismatch: behind the last star, one byte later in the name.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, in_name));
                at += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[in_name]) => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((behind_star, begun)) = retry else { return false };
                retry = Some((behind_star, begun + 1));
                (at, in_name) = (behind_star, begun + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn globs_ignore_case_and_match_whole_names() {
        for (pattern, name, expected) in [
            ("*key*", "API_KEY", true),
            ("A?C", "abc", true),
            ("A?C", "abbc", false),
            ("A", "AB", false),
            ("*", "", true),
            ("A*B*C", "AxBxBxC", true),
            ("A*B", "AxBx", false),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_policy_removes_sets_and_keeps_in_this_order_and_the_overlay_comes_last() {
        let own = pairs(&[
            ("PATH", "/bin"),
            ("API_KEY", "k"),
            ("HOME", "/h"),
            ("X", "1"),
            ("NODE_REPL_AUTH_TOKEN", "t"),
        ]);
        let policy = |base, keep_secrets, include: &[&str]| EnvironmentPolicy {
            base,
            keep_secrets,
            exclude: vec!["x".to_owned()],
            set: pairs(&[("SET", "s")]),
            include_only: include.iter().map(|name| (*name).to_owned()).collect(),
        };
        let chosen =
            |policy| choose(own.clone().into_iter(), policy, pairs(&[("X", "over"), ("PATH", "/usr")]));
        let overlay = [("X", "over"), ("PATH", "/usr")];
        let with = |first: &[(&str, &str)]| pairs(&[first, &overlay[..]].concat());
        assert_eq!(chosen(None), with(&[]));
        assert_eq!(
            chosen(Some(policy(EnvironmentBase::All, true, &[]))),
            with(&[("API_KEY", "k"), ("HOME", "/h"), ("SET", "s")])
        );
        assert_eq!(chosen(Some(policy(EnvironmentBase::All, false, &["S*"]))), with(&[("SET", "s")]));
        assert_eq!(
            chosen(Some(policy(EnvironmentBase::Core, false, &[]))),
            with(&[("HOME", "/h"), ("SET", "s")])
        );
        assert_eq!(chosen(Some(policy(EnvironmentBase::Empty, true, &[]))), with(&[("SET", "s")]));
    }

    #[test]
    fn session_ids_are_uuids_of_version_4() {
        let id = random_session_id();
        let hyphens: Vec<usize> = id.match_indices('-').map(|(at, _)| at).collect();
        assert_eq!((id.len(), hyphens), (36, vec![8, 13, 18, 23]));
        assert_eq!(id.as_bytes()[14], b'4');
        assert_ne!(id, random_session_id());
    }
}
