//! `parlor backup` and `parlor restore`: one file with all of a state folder that is worth keeping.
//!
//! [`parts`] says what belongs to a backup, [`archive`] writes one and [`unpack`] reads one. A log in PostgreSQL is not a
//! part of it: its own tools save it.

mod archive;
mod parts;
mod restore;
mod unpack;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use parlor_log::{CopyProgress, SystemClock, copy_database};
use parlor_vocab::Clock;

use self::archive::{BackupWriter, TemporaryFile, Written};
use self::parts::{DATABASE, Manifest, PARTS, PartKind};
use crate::environment::Environment;
use crate::settings::{self, AgentKind, Config, size, without_secrets};

pub(crate) use self::parts::BACKUP_FORMAT;
pub(crate) use self::restore::{RestoreOptions, restore};

/// The name that stands for standard output or input.
const STANDARD_STREAM: &str = "-";

/// Attached files between two progress lines.
const PROGRESS_FILES: u64 = 100;

/// The flags of `parlor backup`.
#[derive(Args)]
pub(crate) struct BackupOptions {
    /// The new file; an older backup of this name is replaced when the new one is complete. "-" is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Also save keys, logins and the token; the backup is then a secret itself
    #[arg(long)]
    with_secrets: bool,
}

/// What a backup has, for the summary.
struct Summary {
    sessions: Option<u64>,
    files: u64,
    notes: Vec<String>,
}

/// Runs `parlor backup`.
pub(crate) fn backup(
    environment: &Environment,
    options: &BackupOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let home = environment.state_folder()?;
    let config = Config::load(&home)?;
    refuse_if_empty(&home)?;
    if options.file.as_os_str() == STANDARD_STREAM {
        if stdout().is_terminal() {
            bail!("a backup is not text for a terminal; name a file, or send standard output to one");
        }
        let (_, summary) = write(&home, &config, options.with_secrets, &home.join("backup"), out)?;
        // Standard output is the backup. If nobody reads stderr, the exit status remains.
        let _ = print(&summary, options.with_secrets, "The backup has", &mut stderr());
        return Ok(());
    }
    let file = std::path::absolute(&options.file)?;
    let shown = file.display();
    if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
        bail!("{shown} is not a regular file; name a file for the backup");
    }
    let temporary = TemporaryFile(with_suffix(&file, &format!(".new-{}", std::process::id())));
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0);
    let output = create().with_context(|| format!("cannot write {}", temporary.0.display()))?;
    let (output, summary) = write(&home, &config, options.with_secrets, &file, output)?;
    let bytes = output.metadata()?.len();
    output.sync_all().with_context(|| format!("cannot write {}", temporary.0.display()))?;
    std::fs::rename(&temporary.0, &file).with_context(|| format!("cannot write {shown}"))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("cannot sync {shown}"))?;
    print(&summary, options.with_secrets, &format!("{shown} ({}) has", size::show(bytes)), out)
}

/// Fails with the reason if the state folder has nothing that a backup could have.
fn refuse_if_empty(home: &Path) -> anyhow::Result<()> {
    let shown = home.display();
    match std::fs::metadata(home) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "there is no state folder {shown}, so there is nothing to save; PARLOR_HOME names another one"
            )
        }
        found => found.with_context(|| format!("cannot look at {shown}"))?,
    };
    let names = PARTS.iter().map(|part| part.name).chain([DATABASE]);
    if !names.map(|name| home.join(name)).any(|path| path.exists()) {
        bail!(
            "the state folder {shown} is empty, so there is nothing to save; PARLOR_HOME names another one"
        );
    }
    Ok(())
}

/// Writes a backup of `home` to `output`. The copy of the database is made beside `near`.
fn write<W: Write>(
    home: &Path,
    config: &Config,
    with_secrets: bool,
    near: &Path,
    output: W,
) -> anyhow::Result<(W, Summary)> {
    let progress = ProgressLine::on_stderr();
    let made = SystemClock.now().rfc3339();
    let parlor = env!("CARGO_PKG_VERSION").to_owned();
    let manifest = Manifest { format: BACKUP_FORMAT, parlor, made, secrets: with_secrets };
    let mut notes = Vec::new();
    let mut writer = BackupWriter::begin(output, &manifest)?;
    let mut sessions = None;
    if config.log.url.is_some() {
        notes.push(format!(
            "The sessions are in {}, which is not in the backup: save it with its own tools, such as pg_dump, before the backup.",
            config.log.store()
        ));
    } else if home.join(DATABASE).metadata().is_ok_and(|found| found.len() > 0) {
        let copy = TemporaryFile(with_suffix(near, &format!(".database-{}", std::process::id())));
        let copied = copy_database(home, &copy.0, |CopyProgress { pages, of }| {
            progress.show(&format!("copying page {pages} of {of} of the database"));
        });
        sessions = Some(copied.context("no backup was made")?.sessions);
        progress.show("compressing the database");
        writer.file(Path::new(DATABASE), &copy.0)?;
    }
    for part in PARTS.iter().filter(|part| with_secrets || !part.is_secret) {
        if part.name == settings::FILE && !with_secrets {
            add_settings(home, &mut writer, &mut notes)?;
            continue;
        }
        writer.part(home, part, &mut |files| {
            if files.is_multiple_of(PROGRESS_FILES) {
                progress.show(&format!("{files} files saved"));
            }
        })?;
    }
    drop(progress);
    let Written { output, files, left_out } = writer.finish()?;
    notes.extend(left_out.into_iter().map(|file| format!("Left out {file}.")));
    notes.extend(
        scripts(config).map(|file| format!("Left out {file}, a script of an agent; save it yourself.")),
    );
    if !with_secrets && config.mcp.values().any(|server| server.has_args()) {
        notes.push(
            "The arguments of MCP servers are in the backup, also if one of them is a secret.".to_owned(),
        );
    }
    if with_secrets && config.keyring && has_keyring_marks(home) {
        notes.push("Keys and logins in the system's keyring are not in the backup.".to_owned());
    }
    Ok((output, Summary { sessions, files, notes }))
}

/// Adds `parlor.toml` without its tokens and passwords.
fn add_settings<W: Write>(
    home: &Path,
    writer: &mut BackupWriter<W>,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let part = PARTS.iter().find(|part| part.name == settings::FILE && part.kind == PartKind::File);
    let part = part.context("the settings are a part of a backup")?;
    match without_secrets::from_file(home)? {
        without_secrets::Found::NoFile => Ok(()),
        without_secrets::Found::NoSecrets => writer.part(home, part, &mut |_| {}),
        without_secrets::Found::Removed { text, names } => {
            notes.push(format!(
                "parlor.toml in the backup lacks {}; --with-secrets saves all of it.",
                names.join(", ")
            ));
            writer.bytes(Path::new(part.name), text.as_bytes())
        }
        without_secrets::Found::Inseparable { names } => {
            notes.push(format!(
                "Left out parlor.toml, because {} cannot be taken out of it; put each on a line of its own, or use --with-secrets.",
                names.join(", ")
            ));
            Ok(())
        }
    }
}

/// The scripts of agents, which may be anywhere.
fn scripts(config: &Config) -> impl Iterator<Item = String> {
    config.agents.values().filter_map(|agent| match &agent.kind {
        AgentKind::Script(file) => Some(file.display().to_string()),
        AgentKind::Local { .. } | AgentKind::Model(_) => None,
    })
}

/// Whether an empty file in `secrets` stands for a secret in the keyring.
fn has_keyring_marks(home: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(home.join("secrets")) else { return false };
    entries.flatten().any(|entry| entry.metadata().is_ok_and(|found| found.is_file() && found.len() == 0))
}

fn print(summary: &Summary, with_secrets: bool, lead: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let sessions = summary.sessions.map_or("no sessions".to_owned(), |count| format!("{count} sessions"));
    writeln!(out, "{lead} {sessions} and {} files.", summary.files)?;
    if with_secrets {
        writeln!(out, "It also has keys, logins and the token: whoever can read it can use them.")?;
    } else {
        writeln!(out, "It has no keys, logins and tokens; --with-secrets saves them too.")?;
    }
    for note in &summary.notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.to_owned().into_os_string();
    path.push(suffix);
    path.into()
}

/// A line on stderr that is overwritten, and removed at the end. Prints nothing if stderr is not a terminal.
struct ProgressLine {
    is_shown: bool,
}

impl ProgressLine {
    fn on_stderr() -> Self {
        Self { is_shown: stderr().is_terminal() }
    }

    fn show(&self, text: &str) {
        if self.is_shown {
            // Progress is optional, so a write error is ignored.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.show("");
    }
}
