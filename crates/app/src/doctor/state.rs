//! Checks the state folder, the free disk space, and the settings.

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

/// Less free disk space than this is a warning, in bytes.
const LOW_SPACE_BYTES: u64 = 1 << 30;

pub(super) fn check(home: &Path, environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![check_folder(home), check_disk_space(home), check_settings(home, environment)];
    findings.extend(client_access(home));
    findings
}

fn check_folder(home: &Path) -> Finding {
    const CHECK: &str = "state folder";
    let shown = home.display();
    let found = match fs::metadata(home) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return check_missing_folder(home),
        Err(error) => {
            return Finding::problem(CHECK, format!("{shown}: {error}"), "set PARLOR_HOME to another folder");
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
            "make it your own: chown {} {shown} && chmod 700 {shown}",
            rustix::process::getuid().as_raw()
        );
        return Finding::problem(CHECK, format!("{shown} is not writable: {error}"), fix);
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let text = format!("{shown} has mode {mode:04o}: other users can look into it");
        return Finding::warning(CHECK, text, format!("chmod 700 {shown}"));
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        let text = format!("{shown} belongs to user {}", found.uid());
        return Finding::warning(CHECK, text, "set PARLOR_HOME to a folder of your own");
    }
    Finding::ok(CHECK, format!("{shown}, mode {mode:04o}, writable"))
}

fn check_missing_folder(home: &Path) -> Finding {
    const CHECK: &str = "state folder";
    let parent = nearest_folder(home);
    if may(parent, Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        return Finding::ok(
            CHECK,
            format!("{} does not exist yet; the first command creates it", home.display()),
        );
    }
    let text = format!("{} cannot be created: {} is not writable", home.display(), parent.display());
    Finding::problem(CHECK, text, "set PARLOR_HOME to a folder of your own")
}

/// The folder itself, or its nearest ancestor that exists.
fn nearest_folder(home: &Path) -> &Path {
    home.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

fn check_disk_space(home: &Path) -> Finding {
    const CHECK: &str = "disk space";
    let stats = match statvfs(nearest_folder(home)) {
        Ok(stats) => stats,
        Err(error) => return Finding::warning(CHECK, format!("unknown: {error}"), "run df to see it"),
    };
    let free = stats.f_bavail.saturating_mul(stats.f_frsize);
    let text = format!("{} free", size::show(free));
    if free < LEAST_FREE_BYTES {
        Finding::problem(
            CHECK,
            text,
            "free some space, for example with parlor gc, or move PARLOR_HOME to another disk",
        )
    } else if free < LOW_SPACE_BYTES {
        Finding::warning(CHECK, text, "run parlor gc to delete old sessions")
    } else {
        Finding::ok(CHECK, text)
    }
}

fn check_settings(home: &Path, environment: &Environment) -> Finding {
    const CHECK: &str = "parlor.toml";
    // Building the agents also loads and checks their scripts.
    let config = match load_config(home, environment) {
        Ok(config) => config,
        Err(error) => {
            return Finding::problem(
                CHECK,
                format!("{error:#}"),
                "correct the file; docs/settings.md lists all settings",
            );
        }
    };
    let listed: Vec<String> = config
        .agents
        .iter()
        .map(|(id, agent)| {
            let kind = match agent.kind {
                AgentKind::Local { .. } => "local",
                AgentKind::Script(_) => "script",
                AgentKind::Model(_) => "model",
            };
            let mark = if *id == config.default_agent { ", the default" } else { "" };
            format!("{id} ({kind}{mark})")
        })
        .collect();
    if let Some(unknown) = config.unknown_settings.first() {
        let found = format!("a part of {FILE} is ignored: {unknown}");
        let fix = "correct or remove the setting, or use the parlor that knows it; to list all, run: parlor settings --check";
        return Finding::warning(CHECK, found, fix);
    }
    let validity = if home.join(FILE).exists() { "valid" } else { "does not exist, so the defaults apply" };
    Finding::ok(CHECK, format!("{validity}; agents: {}", listed.join(", ")))
}

/// Who may connect to a server of this folder. [`check_settings`] reports invalid settings.
fn client_access(home: &Path) -> Option<Finding> {
    let config = Config::load(home).ok()?;
    Some(Finding::ok("who may connect", who_may_connect(config.allow_local)))
}

fn load_config(home: &Path, environment: &Environment) -> anyhow::Result<Config> {
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
        assert_eq!(check_folder(home.path()).state, Health::Warning);
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(check_folder(home.path()).state, Health::Ok);
        assert_eq!(check_folder(&home.path().join("a/b")).state, Health::Ok, "it can be created");
        fs::write(home.path().join("file"), "").unwrap();
        assert_eq!(check_folder(&home.path().join("file")).state, Health::Problem);
    }
}
