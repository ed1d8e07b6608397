//! The rules of projects: remembered answers in the state folder, and the project's own file.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use parlor_engine::ProjectPolicies;
use parlor_engine::policy::{MAX_RULES, ProjectPolicy, Rule, RuleSource};
use parlor_tools::open_below;
use parlor_vocab::{PolicyMode, PolicyRule, RuleAction};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::settings::policy::rule;

/// The file with remembered answers, in the state folder.
const FILE: &str = "rules.json";

/// The largest size of a file with rules, in bytes.
const RULES_BYTES: u64 = 1 << 20;

/// The project's own file, below its folder.
const PROJECT_FILE: &str = ".parlor/policy.toml";

/// A remembered answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RememberedRule {
    /// Unique among all remembered answers, and never used again while a later one exists.
    pub(crate) id: u64,
    /// The folder of the project.
    pub(crate) project: PathBuf,
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

impl RememberedRule {
    fn new(id: u64, project: &Path, rule: &PolicyRule) -> Self {
        let PolicyRule { action, tool, path, command, host } = rule.clone();
        Self {
            id,
            project: project.to_owned(),
            action: action.as_str().to_owned(),
            tool,
            path,
            command,
            host,
        }
    }

    /// The rule itself. `None` if it was written by another version.
    pub(crate) fn rule(&self) -> Option<PolicyRule> {
        let Self { tool, path, command, host, .. } = self.clone();
        Some(PolicyRule { action: RuleAction::parse(&self.action)?, tool, path, command, host })
    }
}

/// The remembered answers of a state folder.
pub(crate) struct RuleFile {
    path: PathBuf,
}

impl RuleFile {
    pub(crate) fn new(home: &Path) -> Self {
        Self { path: home.join(FILE) }
    }

    /// All remembered answers, the oldest first.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<RememberedRule>> {
        let shown = self.path.display();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot open {shown}")),
        };
        let text = read_text(file).with_context(|| format!("cannot read {shown}"))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{shown} is not valid; correct it, or remove it to forget all answers"))
    }

    /// Adds a rule, unless it is there.
    pub(crate) fn add(&self, project: &Path, rule: &PolicyRule) -> anyhow::Result<()> {
        self.change(|rules| {
            let is_same = |known: &RememberedRule| known.project == project && known.rule().as_ref() == Some(rule);
            if rules.iter().any(is_same) {
                return Ok(());
            }
            if rules.iter().filter(|known| known.project == project).count() >= MAX_RULES {
                bail!("{MAX_RULES} answers are remembered for this project, which is the limit; run parlor rules");
            }
            let id = rules.iter().map(|known| known.id).max().unwrap_or(0) + 1;
            rules.push(RememberedRule::new(id, project, rule));
            Ok(())
        })
    }

    /// Removes the rule with this id and returns it.
    pub(crate) fn remove(&self, id: u64) -> anyhow::Result<RememberedRule> {
        let mut removed = None;
        self.change(|rules| {
            let Some(place) = rules.iter().position(|rule| rule.id == id) else {
                bail!("there is no remembered rule {id}; parlor rules lists them");
            };
            removed = Some(rules.remove(place));
            Ok(())
        })?;
        removed.context("the rule was removed")
    }

    /// Replaces the file as a whole, while no other process does.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<RememberedRule>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let private =
            |path: &Path| File::options().create(true).truncate(false).write(true).mode(0o600).open(path);
        let lock_path = self.path.with_extension("lock");
        let lock = private(&lock_path).with_context(|| format!("cannot open {}", lock_path.display()))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut rules = self.read()?;
        change(&mut rules)?;
        let new = self.path.with_extension("new");
        let mut file = private(&new).with_context(|| format!("cannot write {}", new.display()))?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec_pretty(&rules)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The rules of projects for the engine.
pub(crate) struct ProjectRules {
    file: RuleFile,
    user_home: Option<PathBuf>,
}

impl ProjectRules {
    pub(crate) fn new(home: &Path, user_home: Option<&Path>) -> Self {
        Self { file: RuleFile::new(home), user_home: user_home.map(Path::to_owned) }
    }
}

impl ProjectPolicies for ProjectRules {
    fn read(&self, folder: &Path) -> Result<ProjectPolicy, String> {
        let remembered = self.remembered(folder)?;
        let (rules, mode) = project_file(folder, self.user_home.as_deref())
            .map_err(|error| format!("{}: {error:#}", folder.join(PROJECT_FILE).display()))?;
        Ok(ProjectPolicy { remembered, rules, mode })
    }

    fn remembered(&self, folder: &Path) -> Result<Vec<Rule>, String> {
        let all = self.file.read().map_err(|error| format!("{error:#}"))?;
        let home = self.user_home.as_deref();
        let of_project = all.iter().filter(|rule| rule.project == folder);
        let checked = |rule: &RememberedRule| Rule::new(rule.rule()?, RuleSource::Remembered, home).ok();
        Ok(of_project.filter_map(checked).collect())
    }

    fn remember(&self, folder: &Path, rule: &PolicyRule) -> Result<(), String> {
        self.file.add(folder, rule).map_err(|error| format!("{error:#}"))
    }
}

/// The project's own file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectFile {
    mode: Option<String>,
    #[serde(default)]
    ask: Vec<std::collections::BTreeMap<String, String>>,
    #[serde(default)]
    deny: Vec<std::collections::BTreeMap<String, String>>,
}

fn project_file(folder: &Path, home: Option<&Path>) -> anyhow::Result<(Vec<Rule>, Option<PolicyMode>)> {
    let Some(file) = open_project_file(folder)? else { return Ok((Vec::new(), None)) };
    let text = read_text(file)?;
    // The error of the parser quotes the file, and this error is shown to models.
    let file: ProjectFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        anyhow::anyhow!(
            "line {line} is not valid; a project has `mode`, `ask` and `deny`, which only make the user's policy stricter"
        )
    })?;
    let mode = file
        .mode
        .as_deref()
        .map(|mode| PolicyMode::parse(mode).context("mode is read-only, workspace or full"));
    let mut rules = Vec::new();
    for (action, tables) in [(RuleAction::Ask, file.ask), (RuleAction::Deny, file.deny)] {
        for table in tables {
            let written = rule(action, table.into_iter().collect()).map_err(anyhow::Error::msg)?;
            rules.push(Rule::new(written, RuleSource::Project, home).map_err(anyhow::Error::msg)?);
        }
    }
    if rules.len() > MAX_RULES {
        bail!("there are more than {MAX_RULES} rules, which is the limit");
    }
    Ok((rules, mode.transpose()?))
}

/// The project's own file; `None` if it does not exist. A link to it is an error: it could lead to any file of the user.
fn open_project_file(folder: &Path) -> anyhow::Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(folder, flags, Mode::empty())
        .and_then(|folder| open_below(folder, Path::new(PROJECT_FILE), OFlags::RDONLY | OFlags::NONBLOCK));
    match opened {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::LOOP) => {
            bail!("a part of the path is a symbolic link, which is not followed; put the file there")
        }
        Err(errno) => Err(errno).context("the file cannot be opened"),
    }
}

/// The text of a small file. Another kind of file, and one that is too large, is an error.
fn read_text(file: File) -> anyhow::Result<String> {
    if !file.metadata()?.is_file() {
        bail!("it is not a file");
    }
    let mut text = String::new();
    file.take(RULES_BYTES + 1).read_to_string(&mut text).context("the file cannot be read")?;
    if text.len() as u64 > RULES_BYTES {
        bail!("the file is larger than {RULES_BYTES} bytes, which is the limit");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn allow(command: &str) -> PolicyRule {
        PolicyRule { command: Some(command.to_owned()), ..PolicyRule::new(RuleAction::Allow) }
    }

    #[test]
    fn remembered_rules_belong_to_their_project_and_can_be_removed() {
        let home = tempfile::tempdir().unwrap();
        let (file, rules) = (RuleFile::new(home.path()), ProjectRules::new(home.path(), None));
        let (one, two) = (Path::new("/one"), Path::new("/two"));
        rules.remember(one, &allow("make")).unwrap();
        rules.remember(one, &allow("make")).unwrap();
        rules.remember(two, &allow("cargo test")).unwrap();
        assert_eq!(file.read().unwrap().len(), 2);
        let mode = std::fs::metadata(home.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(rules.read(one).unwrap().remembered[0].written(), &allow("make"));
        assert_eq!(rules.read(two).unwrap().remembered.len(), 1);
        assert_eq!(file.remove(1).unwrap().project, one);
        assert!(rules.read(one).unwrap().remembered.is_empty());
        assert!(file.remove(1).unwrap_err().to_string().contains("no remembered rule 1"));
    }

    #[test]
    fn a_project_narrows_and_a_file_that_cannot_be_understood_is_an_error() {
        let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rules = ProjectRules::new(home.path(), None);
        let file = project.path().join(PROJECT_FILE);
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(
            &file,
            "mode = \"read-only\"\nask = [{ command = \"make *\" }]\ndeny = [{ path = \"x\" }]\n",
        )
        .unwrap();
        let policy = rules.read(project.path()).unwrap();
        assert_eq!((policy.rules.len(), policy.mode), (2, Some(PolicyMode::ReadOnly)));
        for wrong in [
            "allow = [{ command = \"rm *\" }]",
            "mode = \"root\"",
            "deny = [{}]",
            "deny = [{ path = \"../x\" }]",
            "{",
            &"#".repeat(RULES_BYTES as usize + 1),
        ] {
            std::fs::write(&file, wrong).unwrap();
            assert!(rules.read(project.path()).is_err(), "{wrong:.40}");
        }
        std::fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(rules.read(project.path()).unwrap_err().contains("is not a file"));
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_not_followed_and_errors_quote_nothing() {
        let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let rules = ProjectRules::new(home.path(), None);
        let secret = home.path().join("policy.toml");
        std::fs::write(&secret, "mode = \"full\"\nkey = a secret\n").unwrap();
        let (folder, file) = (project.path().join(".parlor"), project.path().join(PROJECT_FILE));
        let error = || rules.read(project.path()).unwrap_err();
        std::os::unix::fs::symlink(home.path(), &folder).unwrap();
        assert!(error().contains("is a symbolic link"), "{}", error());
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&secret, &file).unwrap();
        assert!(error().contains("is a symbolic link"), "{}", error());
        std::fs::remove_file(&file).unwrap();
        std::fs::copy(&secret, &file).unwrap();
        assert!(error().contains("line 2 is not valid") && !error().contains("secret"), "{}", error());
    }
}
