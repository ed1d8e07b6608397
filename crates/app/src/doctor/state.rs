//! The state folder and what is configured in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use parlor_log::LEAST_FREE_BYTES;
use rustix::fs::{Access, access as may, statvfs};

use super::Finding;
use crate::environment::Environment;
use crate::home::{Home, agents};
use crate::serve::who_may_connect;
use crate::settings::{AgentKind, Config, FILE, size};

/// With less room than this, sessions soon cannot be kept.
const LITTLE_ROOM: u64 = 1 << 30;

/// Looks at the folder, at the room in it and at its settings.
pub(super) fn look(home: &Path, environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![folder(home), room(home), settings(home, environment)];
    findings.extend(access(home));
    findings
}

fn folder(home: &Path) -> Finding {
    const CHECK: &str = "state folder";
    let shown = home.display();
    let found = match fs::metadata(home) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return not_there(home),
        Err(error) => {
            return Finding::problem(CHECK, format!("{shown}: {error}"), "choose another with PARLOR_HOME");
        }
    };
    if !found.is_dir() {
        return Finding::problem(
            CHECK,
            format!("{shown} is not a folder"),
            "move it away, or set PARLOR_HOME",
        );
    }
    if let Err(error) = may(home, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        let fix = format!(
            "make it yours: chown {} {shown} && chmod 700 {shown}",
            rustix::process::getuid().as_raw()
        );
        return Finding::problem(CHECK, format!("{shown} cannot be written: {error}"), fix);
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let said = format!("{shown} has mode {mode:04o}: others can look into it");
        return Finding::warning(CHECK, said, format!("chmod 700 {shown}"));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        let said = format!("{shown} belongs to user {}", found.uid());
        return Finding::warning(CHECK, said, "set PARLOR_HOME to a folder of your own");
    }
    Finding::ok(CHECK, format!("{shown}, mode {mode:04o}, can be written"))
}

fn not_there(home: &Path) -> Finding {
    const CHECK: &str = "state folder";
    let above = nearest(home);
    if may(above, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        return Finding::ok(CHECK, format!("{} is made by the first command", home.display()));
    }
    let said = format!("{} cannot be made: {} cannot be written", home.display(), above.display());
    Finding::problem(CHECK, said, "set PARLOR_HOME to a folder of your own")
}

/// The folder itself, or the one above it that is there.
fn nearest(home: &Path) -> &Path {
    home.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

fn room(home: &Path) -> Finding {
    const CHECK: &str = "disk space";
    let stats = match statvfs(nearest(home)) {
        Ok(stats) => stats,
        Err(error) => return Finding::warning(CHECK, format!("not known: {error}"), "look with df"),
    };
    let free = stats.f_bavail.saturating_mul(stats.f_frsize);
    let said = format!("{} free", size::show(free));
    if free < LEAST_FREE_BYTES {
        Finding::problem(
            CHECK,
            said,
            "free some, for example with parlor gc, or move PARLOR_HOME to another disk",
        )
    } else if free < LITTLE_ROOM {
        Finding::warning(CHECK, said, "parlor gc deletes old sessions")
    } else {
        Finding::ok(CHECK, said)
    }
}

fn settings(home: &Path, environment: &Environment) -> Finding {
    const CHECK: &str = "parlor.toml";
    // What is configured must also work: a script is loaded and checked.
    let config = match load(home, environment) {
        Ok(config) => config,
        Err(error) => {
            return Finding::problem(CHECK, format!("{error:#}"), "docs/settings.md says what can be set");
        }
    };
    let listed: Vec<String> = config
        .agents
        .iter()
        .map(|(id, agent)| {
            let kind = match agent.kind {
                AgentKind::Local => "local",
                AgentKind::Script(_) => "script",
                AgentKind::Model(_) => "model",
            };
            let mark = if *id == config.default_agent { ", the default" } else { "" };
            format!("{id} ({kind}{mark})")
        })
        .collect();
    let there = if home.join(FILE).exists() { "right" } else { "none is needed" };
    Finding::ok(CHECK, format!("{there}; agents: {}", listed.join(", ")))
}

/// Who may connect to a server of this folder. Settings that cannot be read are told of by [`settings`].
fn access(home: &Path) -> Option<Finding> {
    let config = Config::load(home).ok()?;
    Some(Finding::ok("who may connect", who_may_connect(config.allow_local)))
}

fn load(home: &Path, environment: &Environment) -> anyhow::Result<Config> {
    let home = Home::at(environment, home.to_owned())?;
    agents(&home, environment)?;
    Ok(home.config().clone())
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    #[test]
    fn a_folder_that_others_can_read_is_a_warning() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(folder(home.path()).state, Health::Warning);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(folder(home.path()).state, Health::Ok);
        assert_eq!(folder(&home.path().join("a/b")).state, Health::Ok, "it can be made");
        fs::write(home.path().join("file"), "").unwrap();
        assert_eq!(folder(&home.path().join("file")).state, Health::Problem);
    }
}
