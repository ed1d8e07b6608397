//! `parlor restore`: unpacks a backup in the state folder, checks it, and then puts its parts into place.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write, stdin};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use parlor_log::{SystemClock, UnusedDatabase, check_foreign_database, database_contents};
use parlor_vocab::Clock;

use super::parts::DATABASE;
use super::unpack::{Unpacked, unpack};
use super::{PROGRESS_FILES, ProgressLine, STANDARD_STREAM};
use crate::environment::Environment;
use crate::serve::ServeLock;
use crate::settings::{self, AgentKind, Config};
use crate::state_folder_trust;

/// How many characters of a program or an address are printed.
const SHOWN_CHARS: usize = 400;

/// The flags of `parlor restore`.
#[derive(Args)]
pub(crate) struct RestoreOptions {
    /// A backup that `parlor backup` made; "-" is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also restore if the state folder has sessions: they move to a folder replaced-TIME in it
    #[arg(long)]
    force: bool,
}

/// Runs `parlor restore`.
pub(crate) fn restore(
    environment: &Environment,
    options: &RestoreOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let home = environment.state_folder()?;
    state_folder_trust::check(&home)?;
    if !options.force {
        refuse_if_it_has_sessions(&home)?;
    }
    let is_new = !home.exists();
    let staging = Staging::create(&home, is_new)?;
    let progress = ProgressLine::on_stderr();
    let mut on_file = |files: u64| {
        if files.is_multiple_of(PROGRESS_FILES) {
            progress.show(&format!("{files} files read"));
        }
    };
    let unpacked = if options.file.as_os_str() == STANDARD_STREAM {
        unpack(stdin().lock(), &staging.path, &mut on_file)
    } else {
        let shown = options.file.display();
        let file = File::open(&options.file).with_context(|| format!("cannot read {shown}"))?;
        unpack(file, &staging.path, &mut on_file)
    };
    let unpacked = unpacked
        .with_context(|| format!("nothing was restored: {} is not usable", options.file.display()))?;
    let sessions = if unpacked.has_database {
        progress.show("checking the database");
        let checked = check_foreign_database(&staging.path.join(DATABASE));
        Some(checked.context("nothing was restored: the database in the backup is not usable")?.sessions)
    } else {
        None
    };
    drop(progress);
    // Whoever starts now waits, and whoever runs is refused.
    let _serve_lock = ServeLock::take(&home)?;
    let _database_lock = UnusedDatabase::lock(&home).context("nothing was restored")?;
    if !options.force {
        refuse_if_it_has_sessions(&home)?;
    }
    let replaced = staging.put_into_place(&home)?;
    print(&home, &unpacked, sessions, replaced.as_deref(), out)
}

fn refuse_if_it_has_sessions(home: &Path) -> anyhow::Result<()> {
    let shown = home.display();
    let found = database_contents(home).with_context(|| {
        format!(
            "cannot see whether {shown} has sessions; with --force they move to a folder replaced-TIME in it"
        )
    })?;
    match found {
        Some(found) if found.sessions > 0 => bail!(
            "{shown} has {} sessions; with --force they move to a folder replaced-TIME in it, or set PARLOR_HOME to a new folder",
            found.sessions
        ),
        Some(_) | None => Ok(()),
    }
}

/// The folder with the unpacked backup. Dropping it removes the folder, and the state folder if that is new and empty.
struct Staging {
    path: PathBuf,
    new_home: Option<PathBuf>,
}

impl Staging {
    fn create(home: &Path, is_new: bool) -> anyhow::Result<Self> {
        let path = home.join(format!("restoring-{}", std::process::id()));
        let failed = || format!("cannot make the folder {}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(home).with_context(failed)?;
        let new_home = is_new.then(|| home.to_owned());
        // A folder of a killed process that had the same id.
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).with_context(failed),
            Ok(()) | Err(_) => {}
        }
        DirBuilder::new().mode(0o700).create(&path).with_context(failed)?;
        Ok(Self { path, new_home })
    }

    /// Moves the parts of the backup into the state folder, and those that were there into a new folder, which it returns
    /// if there were any. The database is the last.
    fn put_into_place(&self, home: &Path) -> anyhow::Result<Option<PathBuf>> {
        let aside = home.join(format!("replaced-{}", SystemClock.now().rfc3339().replace(':', "-")));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            names.push(entry?.file_name());
        }
        names.sort_by_key(|name| name == DATABASE);
        let folder = File::open(home)?;
        rustix::fs::syncfs(&folder).context("cannot write the restored files to the disk")?;
        let mut is_any_replaced = false;
        let mut moved = || -> std::io::Result<()> {
            for name in &names {
                let beside: &[&str] = if name == DATABASE { &["", "-wal", "-shm"] } else { &[""] };
                for suffix in beside {
                    let mut old = name.clone();
                    old.push(suffix);
                    if home.join(&old).symlink_metadata().is_ok() {
                        DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
                        std::fs::rename(home.join(&old), aside.join(&old))?;
                        is_any_replaced = true;
                    }
                }
                std::fs::rename(self.path.join(name), home.join(name))?;
            }
            folder.sync_all()
        };
        moved().with_context(|| {
            format!(
                "the restore stopped half-way: {} has the files that were replaced so far; move them back, or restore again with --force",
                aside.display()
            )
        })?;
        Ok(is_any_replaced.then_some(aside))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed is a folder restoring-… that a user can remove.
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(home) = &self.new_home {
            // Fails if the folder is not empty, which is the usual case.
            let _ = std::fs::remove_dir(home);
        }
    }
}

fn print(
    home: &Path,
    unpacked: &Unpacked,
    sessions: Option<u64>,
    replaced: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Unpacked { manifest, files, .. } = unpacked;
    let shown = home.display();
    let sessions = sessions.map_or("no sessions".to_owned(), |count| format!("{count} sessions"));
    // The backup may come from anybody; the rim cleans texts for the terminal.
    let [made, parlor] = [&manifest.made, &manifest.parlor].map(|text| {
        crate::text::TerminalSanitizer::default().sanitize(text).chars().take(40).collect::<String>()
    });
    writeln!(out, "{shown} has the {sessions} and {files} files of the backup of {made} (parlor {parlor}).")?;
    if let Some(replaced) = replaced {
        writeln!(
            out,
            "What was there before is in {}; delete it when nothing is missing.",
            replaced.display()
        )?;
    }
    if manifest.secrets {
        writeln!(out, "The keys, logins and the token of the backup are in use again.")?;
    } else {
        writeln!(out, "The backup has no keys and logins: parlor auth lists those that are here.")?;
    }
    match Config::load(home) {
        Err(error) => writeln!(out, "{} of the backup needs a change: {error:#}", settings::FILE)?,
        Ok(config) => print_outside(&config, out)?,
    }
    Ok(())
}

/// What the settings of the backup start and connect to: whoever made the backup chose it.
fn print_outside(config: &Config, out: &mut dyn Write) -> anyhow::Result<()> {
    let servers = config.mcp.iter().filter(|(_, server)| server.is_enabled());
    let servers = servers.map(|(name, server)| format!("mcp.{name}: {}", server.summary()));
    let scripts = config.agents.iter().filter_map(|(name, agent)| match &agent.kind {
        AgentKind::Script(file) => Some(format!("agents.{name}: the script {}", file.display())),
        AgentKind::Local { .. } | AgentKind::Model(_) => None,
    });
    let outside: Vec<String> = servers.chain(scripts).collect();
    if !outside.is_empty() {
        writeln!(
            out,
            "The settings of the backup start or use the following; check it before the first run:"
        )?;
    }
    for line in outside {
        let line = crate::text::TerminalSanitizer::default().sanitize(&line).replace('\n', " ");
        writeln!(out, "  {}", parlor_vocab::truncate_chars(&line, SHOWN_CHARS))?;
    }
    Ok(())
}
