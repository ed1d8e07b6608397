//! The servers that a project brings in its `.mcp.json`, which anybody may have written.
//!
//! Reading the file starts nothing. The engine opens the servers of a text that the user trusts, in the sandbox of the run; the
//! [digest](ProjectMcpFile::digest) names the text, so a changed file is a new question. Variables in the file get the values
//! that commands of agents have, never others of parlor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use parlor_files::open_below;
use parlor_process::Sandbox;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::naming::is_server_name;
use super::{MAX_SERVER_NAME, MCP_CALL_TIMEOUT, McpLaunch, McpServerConfig, McpServers};
use crate::source::{ToolServerStatus, ToolSource};

/// The name of the file, in the root of a project.
pub const PROJECT_MCP_FILE: &str = ".mcp.json";

/// The largest file, in bytes.
pub const PROJECT_MCP_BYTES: u64 = 64 << 10;

/// How many servers a project may bring.
pub const PROJECT_MCP_SERVERS: usize = 16;

/// How many bytes the list of the servers may have in a question. A file that needs more is refused, because nobody could read
/// what they decide about.
pub const PROJECT_MCP_SHOWN_BYTES: usize = 12 << 10;

/// The servers of how many projects are kept for the next run.
pub const PROJECT_MCP_KEPT: usize = 32;

/// Values of variables and headers from this length on are secrets.
const MIN_SECRET_BYTES: usize = 8;

/// Remembers a text that must not be shown.
pub type LearnMcpSecret = Arc<dyn Fn(&str) + Send + Sync>;

/// The servers of all projects.
pub struct ProjectMcpServers {
    /// The names of servers in the settings, also of disabled ones: a project never replaces them.
    taken: BTreeSet<String>,
    env: Vec<(String, String)>,
    learn: LearnMcpSecret,
    /// The latest last.
    kept: Mutex<VecDeque<KeptServers>>,
}

struct KeptServers {
    root: PathBuf,
    digest: String,
    /// The terms of the sandbox: runs with others get servers of their own.
    terms: String,
    servers: Arc<McpServers>,
}

/// The file of one project, as it was read.
#[derive(Clone, Debug)]
pub struct ProjectMcpFile {
    digest: String,
    servers: Vec<ProjectServer>,
}

#[derive(Clone, Debug)]
struct ProjectServer {
    name: String,
    /// What the file says about it, for people, without values that may be secrets.
    shown: String,
    /// How to reach it, or why it is left out.
    launch: Result<McpLaunch, String>,
    /// The values that must not be shown.
    secrets: Vec<String>,
}

impl ProjectMcpServers {
    /// `taken` are the names of servers in the settings. `env` is the environment of agents' commands. `learn` gets the values
    /// of variables and headers before a server is started.
    pub fn new(
        taken: impl IntoIterator<Item = String>,
        env: Vec<(String, String)>,
        learn: LearnMcpSecret,
    ) -> Self {
        Self { taken: taken.into_iter().collect(), env, learn, kept: Mutex::default() }
    }

    /// Reads the file of the project with this root, without following links; `None` if it has none. Blocks for the time of a
    /// small file. The error quotes nothing of the file.
    pub fn read(&self, root: &Path) -> Result<Option<ProjectMcpFile>, String> {
        let Some(bytes) = read_file(root).map_err(|error| format!("{PROJECT_MCP_FILE} {error}"))? else {
            return Ok(None);
        };
        let file =
            self.parse(root, &bytes).map_err(|error| format!("{PROJECT_MCP_FILE} is not used: {error}"))?;
        Ok(Some(file).filter(|file| !file.servers.is_empty()))
    }

    fn parse(&self, root: &Path, bytes: &[u8]) -> Result<ProjectMcpFile, String> {
        let written: WrittenFile = serde_json::from_slice(bytes)
            .map_err(|error| format!("line {} is not what such a file has", error.line()))?;
        if written.servers.len() > PROJECT_MCP_SERVERS {
            return Err(format!("it has more than {PROJECT_MCP_SERVERS} servers, which is the limit"));
        }
        let servers: Vec<ProjectServer> =
            written.servers.into_iter().map(|(name, server)| self.server(root, name, server)).collect();
        let file = ProjectMcpFile { digest: digest(bytes), servers };
        if file.summary().len() > PROJECT_MCP_SHOWN_BYTES {
            return Err(format!(
                "a question about its servers would have more than {PROJECT_MCP_SHOWN_BYTES} bytes, which is the limit"
            ));
        }
        Ok(file)
    }

    fn server(&self, root: &Path, name: String, written: Value) -> ProjectServer {
        let written: WrittenServer = match serde_json::from_value(written) {
            Ok(written) => written,
            Err(_) => {
                let launch = Err("it is not written as a server is".to_owned());
                return ProjectServer { shown: String::new(), launch, secrets: Vec::new(), name };
            }
        };
        let launch = match () {
            () if !is_server_name(&name) => {
                Err(format!("its name is not 1 to {MAX_SERVER_NAME} letters, digits, - and _"))
            }
            () if self.taken.contains(&name) => Err("parlor.toml has a server of this name".to_owned()),
            () => self.launch(root, &written),
        };
        let secrets = if launch.is_ok() { self.secrets(&written) } else { Vec::new() };
        ProjectServer { shown: written.shown(), launch, secrets, name }
    }

    /// Values of variables and headers, the part of a header after its scheme, and the password and the query of the address.
    fn secrets(&self, written: &WrittenServer) -> Vec<String> {
        let values = written.env.values().chain(written.headers.values());
        let mut secrets: Vec<String> = values.filter_map(|value| expand(value, &self.env).ok()).collect();
        let parts = secrets.iter().filter_map(|value| Some(value.split_once(' ')?.1.to_owned()));
        let parts: Vec<String> = parts.collect();
        secrets.extend(parts);
        let url =
            written.url.as_ref().and_then(|url| reqwest::Url::parse(&expand(url, &self.env).ok()?).ok());
        if let Some(url) = url {
            secrets.extend(url.password().map(str::to_owned));
            secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        }
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        secrets
    }

    fn launch(&self, root: &Path, written: &WrittenServer) -> Result<McpLaunch, String> {
        let expand = |text: &String| expand(text, &self.env);
        let values = |values: &BTreeMap<String, String>| -> Result<BTreeMap<String, String>, String> {
            values.iter().map(|(name, value)| Ok((name.clone(), expand(value)?))).collect()
        };
        match (&written.command, &written.url) {
            (Some(program), None) => {
                let own = values(&written.env)?;
                let kept = self.env.iter().filter(|(name, _)| !own.contains_key(name)).cloned();
                Ok(McpLaunch::Command {
                    program: expand(program)?,
                    args: written.args.iter().map(expand).collect::<Result<_, _>>()?,
                    env: kept.chain(own.clone()).collect(),
                    folder: root.to_owned(),
                })
            }
            (None, Some(_)) if written.kind.as_deref() == Some("sse") => {
                Err("it uses the transport of 2024-11-05 (sse), which parlor does not have".to_owned())
            }
            (None, Some(url)) => {
                let url = expand(url)?;
                let is_http = url.starts_with("http://") || url.starts_with("https://");
                let headers = values(&written.headers)?;
                if is_http {
                    Ok(McpLaunch::Url { url, headers })
                } else {
                    Err("its url does not begin with http:// or https://".to_owned())
                }
            }
            (None, None) | (Some(_), Some(_)) => Err("it needs either command or url".to_owned()),
        }
    }

    /// The servers of a file that the user trusts, confined by `sandbox`. They start when a run first needs their tools. Runs in
    /// the same project and the same terms share them; those of another text of the same file end with their last run.
    pub fn open(
        &self,
        root: &Path,
        file: &ProjectMcpFile,
        sandbox: Option<&Arc<Sandbox>>,
    ) -> Arc<McpServers> {
        let terms = format!("{sandbox:?}");
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.root != root || kept.digest == file.digest);
        let is_same = |kept: &KeptServers| kept.root == root && kept.terms == terms;
        if let Some(position) = kept.iter().position(is_same)
            && let Some(found) = kept.remove(position)
        {
            let servers = Arc::clone(&found.servers);
            kept.push_back(found);
            return servers;
        }
        file.servers.iter().flat_map(|server| &server.secrets).for_each(|secret| (self.learn)(secret));
        let config = |server: &ProjectServer| {
            let (name, launch) = (server.name.clone(), server.launch.clone().ok()?);
            Some(McpServerConfig { name, launch, tools: None, timeout: MCP_CALL_TIMEOUT })
        };
        let configs = file.servers.iter().filter_map(config).collect();
        let servers = Arc::new(McpServers::in_sandbox(configs, sandbox));
        if kept.len() >= PROJECT_MCP_KEPT {
            kept.pop_front();
        }
        kept.push_back(KeptServers {
            root: root.to_owned(),
            digest: file.digest.clone(),
            terms,
            servers: Arc::clone(&servers),
        });
        servers
    }

    /// How the servers of all projects are now that runs use or have used.
    pub fn statuses(&self) -> Vec<ToolServerStatus> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |kept: &KeptServers| {
            let origin = Some(kept.root.join(PROJECT_MCP_FILE));
            let servers = kept.servers.servers().into_iter();
            servers.map(|server| ToolServerStatus { origin: origin.clone(), ..server }).collect::<Vec<_>>()
        };
        kept.iter().flat_map(of).collect()
    }
}

impl ProjectMcpFile {
    /// Names the text of the file: `sha256:` and 64 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether a trusted file would give tools.
    pub fn has_servers(&self) -> bool {
        self.servers.iter().any(|server| server.launch.is_ok())
    }

    /// What the file would start, for people, one line for each server that would be used. No value of a variable or of a header
    /// is in it.
    pub fn summary(&self) -> String {
        let used = self.servers.iter().filter(|server| server.launch.is_ok());
        used.map(|server| format!("{}: {}", server.name, server.shown)).collect::<Vec<_>>().join("\n")
    }

    /// All servers: the name, what the file says, and why it is left out, if it is.
    pub fn servers(&self) -> impl Iterator<Item = (String, &str, Option<&str>)> {
        self.servers.iter().map(|server| {
            let reason = server.launch.as_ref().err().map(String::as_str);
            (server.name.escape_debug().take(128).collect(), server.shown.as_str(), reason)
        })
    }

    /// Sentences about the servers that are left out.
    pub fn omissions(&self) -> Vec<String> {
        let left_out = self.servers().filter_map(|(name, _, reason)| Some((name, reason?)));
        left_out
            .map(|(name, reason)| {
                format!("The MCP server \"{name}\" of {PROJECT_MCP_FILE} is left out: {reason}.")
            })
            .collect()
    }
}

#[derive(Deserialize)]
struct WrittenFile {
    #[serde(rename = "mcpServers", default)]
    servers: Map<String, Value>,
}

/// A server as other programs write it too. What parlor does not know is ignored.
#[derive(Deserialize)]
struct WrittenServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl WrittenServer {
    /// What is started or connected to. Quoted, so that spaces and invisible characters show.
    fn shown(&self) -> String {
        let list = |what: &str, names: Vec<&String>| match names.is_empty() {
            true => String::new(),
            false => format!(", with the {what} {}", quoted(names)),
        };
        match (&self.command, &self.url) {
            (Some(command), _) => {
                let line = std::iter::once(command).chain(&self.args).collect();
                format!("runs {}{}", quoted(line), list("variables", self.env.keys().collect()))
            }
            (None, Some(url)) => {
                let headers = list("headers", self.headers.keys().collect());
                format!("connects to {}{headers}", quoted(vec![&shown_address(url)]))
            }
            (None, None) => String::new(),
        }
    }
}

fn quoted(texts: Vec<&String>) -> String {
    texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" ")
}

/// The address without user, password, query and fragment, which may be secrets.
fn shown_address(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (host, path) = rest.find(['/', '\\']).map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Replaces `${NAME}` and `${NAME:-DEFAULT}`.
fn expand(text: &str, env: &[(String, String)]) -> Result<String, String> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, after)) = after.split_once('}') else { break };
        let (name, default) =
            inside.split_once(":-").map_or((inside, None), |(name, default)| (name, Some(default)));
        let value = env.iter().find(|(known, value)| known == name && !value.is_empty());
        let value = value.map(|(_, value)| value.as_str()).or(default);
        let Some(value) = value else {
            let name: String = name.escape_debug().take(64).collect();
            return Err(format!("it needs the variable {name}, which commands of agents do not have"));
        };
        expanded.push_str(before);
        expanded.push_str(value);
        rest = after;
    }
    Ok(expanded + rest)
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// The bytes of the file; `None` if there is none.
fn read_file(root: &Path) -> Result<Option<Vec<u8>>, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root, flags, Mode::empty())
        .and_then(|root| open_below(root, Path::new(PROJECT_MCP_FILE), OFlags::RDONLY | OFlags::NONBLOCK));
    let file = match opened {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Err("is a symbolic link, which is not followed".to_owned()),
        Err(errno) => return Err(format!("cannot be opened: {errno}")),
    };
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(PROJECT_MCP_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > PROJECT_MCP_BYTES {
        return Err(format!("is larger than {PROJECT_MCP_BYTES} bytes, which is the limit"));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use parlor_vocab::PolicyMode;
    use tempfile::TempDir;

    use super::*;

    fn servers() -> ProjectMcpServers {
        let env = [("PATH", "/usr/local/bin"), ("REGION", "north"), ("EMPTY", "")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        ProjectMcpServers::new(["mine".to_owned()], env, Arc::new(|_| ()))
    }

    fn parse(text: &str) -> Result<ProjectMcpFile, String> {
        servers().parse(Path::new("/p"), text.as_bytes())
    }

    #[test]
    fn servers_are_read_as_other_programs_write_them() {
        let file = parse(
            r#"{"mcpServers": {
                "run": {"type": "stdio", "command": "./serve", "args": ["--region", "${REGION}", "a b"], "env": {"KEY": "${NONE:-s3cret-key}"}, "disabled": false},
                "web": {"type": "http", "url": "https://me:pa55@h.example/mcp?key=s3cret-query", "headers": {"Authorization": "Bearer ${REGION}-token"}}
            }}"#,
        )
        .unwrap();
        assert_eq!(
            file.summary(),
            "run: runs \"./serve\" \"--region\" \"${REGION}\" \"a b\", with the variables \"KEY\"\n\
             web: connects to \"https://h.example/mcp\", with the headers \"Authorization\""
        );
        let Ok(McpLaunch::Command { program, args, env, folder }) = &file.servers[0].launch else { panic!() };
        assert_eq!(
            (program.as_str(), &args[..2]),
            ("./serve", &["--region".to_owned(), "north".to_owned()][..])
        );
        assert_eq!(env.last().unwrap(), &("KEY".to_owned(), "s3cret-key".to_owned()));
        assert_eq!(folder, Path::new("/p"));
        assert_eq!(file.servers[0].secrets, ["s3cret-key"]);
        assert_eq!(file.servers[1].secrets, ["Bearer north-token", "north-token", "s3cret-query"]);
    }

    #[test]
    fn a_server_that_cannot_be_used_is_named_with_the_reason() {
        let file = parse(
            r#"{"mcpServers": {
                "mine": {"command": "a"}, "a.b": {"command": "a"}, "both": {"command": "a", "url": "http://h"},
                "old": {"type": "sse", "url": "http://h"}, "ftp": {"url": "ftp://h"}, "needs": {"command": "${EMPTY}"}, "odd": 5
            }}"#,
        )
        .unwrap();
        assert!(!file.has_servers() && file.summary().is_empty());
        let omissions = file.omissions().join("\n");
        for reason in [
            "\"mine\" of .mcp.json is left out: parlor.toml has a server of this name",
            "\"a.b\" of .mcp.json is left out: its name is not",
            "either command or url",
            "2024-11-05",
            "http:// or https://",
            "needs the variable EMPTY",
            "\"odd\" of .mcp.json is left out: it is not written",
        ] {
            assert!(omissions.contains(reason), "{reason}: {omissions}");
        }
    }

    #[test]
    fn a_file_beyond_the_limits_is_refused_as_a_whole_and_not_quoted() {
        let many = |count: usize, padding: usize| {
            let server =
                |n: usize| format!(r#""s{n}": {{"command": "c", "args": ["{}"]}}"#, "x".repeat(padding));
            format!(r#"{{"mcpServers": {{{}}}}}"#, (0..count).map(server).collect::<Vec<_>>().join(","))
        };
        assert!(parse(&many(PROJECT_MCP_SERVERS, 0)).is_ok());
        assert!(parse(&many(PROJECT_MCP_SERVERS + 1, 0)).unwrap_err().contains("more than 16 servers"));
        assert!(parse(&many(16, 1000)).unwrap_err().contains("a question about its servers"));
        let error = parse("{\n\"mcpServers\": s3cret").unwrap_err();
        assert!(error.contains("line 2") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn invisible_characters_show_and_the_host_is_the_one_that_is_connected_to() {
        let text = r#"{"mcpServers": {"a": {"command": "ls\u001b[2K\u202e"}, "b": {"url": "https://good.example@evil.example/x"}}}"#;
        let summary = parse(text).unwrap().summary();
        assert!(summary.contains(r#""ls\u{1b}[2K\u{202e}""#), "{summary}");
        assert!(summary.contains("\"https://evil.example/x\""), "{summary}");
    }

    #[test]
    fn links_pipes_and_large_files_are_refused_and_no_file_is_nothing() {
        let (servers, project) = (servers(), TempDir::new().unwrap());
        let (root, path) = (project.path(), project.path().join(PROJECT_MCP_FILE));
        assert!(servers.read(root).unwrap().is_none());
        std::fs::write(&path, "{}").unwrap();
        assert!(servers.read(root).unwrap().is_none(), "a file without servers is nothing");
        std::fs::write(&path, " ".repeat(PROJECT_MCP_BYTES as usize + 1)).unwrap();
        assert!(servers.read(root).unwrap_err().contains("is larger than"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(servers.read(root).unwrap_err().contains("symbolic link"));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        assert!(servers.read(root).unwrap_err().contains("is not a file"));
    }

    #[test]
    fn runs_share_servers_of_the_same_text_in_the_same_terms_only() {
        let (servers, root) = (servers(), Path::new("/p"));
        let one = parse(r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
        let other = parse(r#"{"mcpServers": {"a": {"command": "y"}}}"#).unwrap();
        assert_ne!(one.digest(), other.digest());
        let sandbox = |mode| Some(Arc::new(Sandbox::new(mode, root, None)));
        let (workspace, read_only) = (sandbox(PolicyMode::Workspace), sandbox(PolicyMode::ReadOnly));
        let first = servers.open(root, &one, workspace.as_ref());
        assert!(Arc::ptr_eq(&first, &servers.open(root, &one, sandbox(PolicyMode::Workspace).as_ref())));
        assert!(!Arc::ptr_eq(&first, &servers.open(root, &one, read_only.as_ref())));
        assert!(!Arc::ptr_eq(&first, &servers.open(Path::new("/q"), &one, workspace.as_ref())));
        servers.open(root, &other, workspace.as_ref());
        assert_eq!(Arc::strong_count(&first), 1, "those of the old text end with their last run");
        for number in 0..2 * PROJECT_MCP_KEPT {
            servers.open(Path::new(&format!("/{number}")), &one, None);
        }
        assert_eq!(servers.kept.lock().unwrap().len(), PROJECT_MCP_KEPT);
    }
}
