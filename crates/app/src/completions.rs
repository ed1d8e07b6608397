//! `parlor completions` and `parlor man`: files that packages install, made from the definition of the command line.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;

/// The arguments of `parlor completions`.
#[derive(Args)]
pub(crate) struct CompletionsOptions {
    /// The shell that runs the script
    shell: Shell,
}

/// The arguments of `parlor man`.
#[derive(Args)]
pub(crate) struct ManOptions {
    /// The folder for the pages; it is created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the completion script of a shell.
pub(crate) fn completions(options: &CompletionsOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    // The generator panics if it cannot write, for example because the reader closed the pipe; a buffer takes everything.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "parlor", &mut script);
    out.write_all(&script)?;
    Ok(())
}

/// Writes a manual page for parlor and for each of its subcommands.
pub(crate) fn man(options: &ManOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = Cli::command();
    command.build();
    let pages = write_pages(command, folder)?;
    writeln!(out, "{pages} manual pages are in {}", folder.display())?;
    Ok(())
}

/// Writes the page of a command and those of its subcommands, and returns how many there are.
fn write_pages(command: clap::Command, folder: &Path) -> anyhow::Result<usize> {
    let mut pages = 1;
    // The subcommand `help` is the same everywhere, and has no page.
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        pages += write_pages(subcommand.clone(), folder)?;
    }
    // A built command calls itself by its whole path: `parlor-sessions-rename`.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = clap_mangen::Man::new(command).manual("parlor");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            completions(&CompletionsOptions { shell }, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            for word in ["chat", "sessions", "rename", "older-than"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
    }

    #[test]
    fn every_subcommand_gets_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man/man1");
        man(&ManOptions { folder: pages.clone() }, &mut Vec::new()).unwrap();
        let read = |name: &str| {
            fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        assert!(read("parlor.1").contains("One agent runtime with many doors"));
        assert!(read("parlor-sessions-rename.1").contains("parlor sessions rename"));
        assert!(read("parlor-stdio-exec.1").contains("parlor stdio exec"));
        assert!(!pages.join("parlor-help.1").exists());
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = read(&format!("parlor-{}.1", command.get_name()));
            // A page with the time of its making would differ in every build.
            assert!(
                page.lines().any(|line| line.starts_with(".TH parlor-") && !line.contains("20")),
                "{page}"
            );
        }
    }
}
