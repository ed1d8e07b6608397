//! `parlor rules`: lists and removes the answers that were remembered for projects, and remembers that one is trusted.

mod store;

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Subcommand};
use parlor_engine::ProjectPolicies;
use parlor_engine::policy::{
    PROJECT_SERVERS_TRUST, PROJECT_TRUST, ProjectPolicy, RunPolicy, Verdict, describe,
};
use parlor_model::project_root;
use parlor_tools::{ProjectMcpFile, ProjectMcpServers};
use parlor_vocab::{PolicyRule, RuleAction};

pub(crate) use self::store::ProjectRules;
use self::store::{RememberedRule, RuleFile};
use crate::environment::Environment;
use crate::home::Home;

/// The arguments of `parlor rules`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Remove a rule, so that the user is asked again
    Remove {
        /// The number of the rule, as parlor rules prints it
        id: u64,
    },
    /// Trust a project from now on, so that agents read its instructions and skills, and use the MCP servers that its .mcp.json
    /// has now, without a question
    Trust {
        /// A folder of the project; the current one if it is left out
        folder: Option<PathBuf>,
    },
}

/// Runs `parlor rules`.
pub(crate) fn run(environment: &Environment, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let file = RuleFile::new(&environment.state_folder()?);
    let rules = match &options.action {
        Some(Action::Remove { id }) => vec![file.remove(*id)?],
        Some(Action::Trust { folder }) => {
            let folder = folder.clone().map_or_else(std::env::current_dir, Ok)?;
            trust_project(environment, &folder)?;
            return Ok(());
        }
        None => file.read()?,
    };
    for rule in &rules {
        if options.json {
            serde_json::to_writer(&mut *out, rule)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", line(rule)?)?;
        }
    }
    if rules.is_empty() && !options.json {
        writeln!(
            out,
            "No answer is remembered. The answer \"always in this project\" to a question adds a rule."
        )?;
    }
    Ok(())
}

/// Remembers that the project of `folder` is trusted.
pub(crate) fn trust_project(environment: &Environment, folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    let folder = folder.canonicalize().with_context(|| format!("cannot trust the project in {shown}"))?;
    let home = environment.user_home.as_deref().map(Path::new);
    let rule = PolicyRule { tool: Some(PROJECT_TRUST.to_owned()), ..PolicyRule::new(RuleAction::Allow) };
    let state = environment.state_folder()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&state)?;
    let (rules, root) = (RuleFile::new(&state), project_root(&folder, home));
    rules.add(&root, &rule)?;
    // The names that the settings have do not matter here.
    let servers = ProjectMcpServers::new([], Vec::new(), Arc::new(|_| ()));
    match servers.read(&root) {
        Ok(Some(file)) => rules.add(&root, &servers_rule(&file)),
        // A run says what is wrong with it.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// The rule by which this text of a project's file with MCP servers is trusted.
fn servers_rule(file: &ProjectMcpFile) -> PolicyRule {
    PolicyRule {
        tool: Some(PROJECT_SERVERS_TRUST.to_owned()),
        command: Some(file.digest().to_owned()),
        ..PolicyRule::new(RuleAction::Allow)
    }
}

/// The MCP servers that the project of the working folder brings.
pub(crate) struct ProjectServers {
    /// The project's folder.
    pub(crate) root: PathBuf,
    /// The project's file and what the rules say about it, or why it cannot be used.
    pub(crate) judged: Result<(ProjectMcpFile, Verdict), String>,
}

/// The servers of the project of the working folder, if it has a file of them.
pub(crate) fn project_servers(home: &Home, environment: &Environment) -> Option<ProjectServers> {
    let folder = std::env::current_dir().ok()?.canonicalize().ok()?;
    let user_home = environment.user_home.as_deref().map(Path::new);
    let root = project_root(&folder, user_home);
    let file = match home.project_mcp_servers(environment).read(&root) {
        Ok(file) => file?,
        Err(reason) => return Some(ProjectServers { root, judged: Err(reason) }),
    };
    let judge = || -> Result<Verdict, String> {
        let (settings, rules) =
            (home.config().policy.settings(user_home)?, ProjectRules::new(home.path(), user_home));
        let project: ProjectPolicy = rules.read(&folder)?;
        let policy = RunPolicy::new(&settings, project, None, &folder);
        Ok(policy.project_servers_trust(&root, file.digest(), &rules.remembered(&root)?))
    };
    let judged = judge().map(|verdict| (file, verdict));
    Some(ProjectServers { root, judged })
}

fn line(rule: &RememberedRule) -> anyhow::Result<String> {
    let written = rule.rule().with_context(|| format!("rule {} has an unknown action", rule.id))?;
    Ok(format!("{}  {}  in {}", rule.id, describe(&written), rule.project.display()))
}
