//! `parlor version`: what this program is made of, for reports and upgrades.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use parlor_doors::{exec, loaf, peer, supex, supr, synaps};

use crate::backup::BACKUP_FORMAT;
use crate::json;

/// The version of the Agent Client Protocol.
const ACP_VERSION: &str = "1";

/// The options of `parlor version`.
#[derive(Args)]
pub(crate) struct Options {
    /// Also print the commit, the features, the formats of files and the protocol versions of the doors
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object with all of it
    #[arg(long)]
    json: bool,
}

/// Everything that has a version.
struct Versions {
    version: &'static str,
    /// The commit of the source, or `unknown`.
    commit: &'static str,
    target: String,
    features: Vec<&'static str>,
    formats: Vec<(&'static str, String)>,
    doors: Vec<(&'static str, String)>,
}

impl Versions {
    fn new(commit: &'static str) -> Self {
        let page = if parlor_web::PAGE.is_empty() { "no page" } else { "page" };
        let peers: Vec<String> = peer::VERSIONS.iter().map(ToString::to_string).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit,
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            features: vec!["sqlite", "postgres", "keyring", page],
            formats: vec![
                ("database", parlor_log::DATABASE_FORMAT.to_string()),
                ("events", parlor_log::ROW_VERSION.to_string()),
                ("backup", BACKUP_FORMAT.to_string()),
            ],
            doors: vec![
                ("acp", ACP_VERSION.to_owned()),
                ("exec", exec::PROTOCOL_VERSION.to_owned()),
                ("loaf", loaf::PROTOCOL_VERSION.to_owned()),
                ("peer", peers.join(", ")),
                ("supex", supex::RUNTIME_VERSION.to_owned()),
                ("supr", supr::wire::VERSION.to_owned()),
                ("synaps", synaps::RPC_PROTOCOL_VERSION.to_string()),
            ],
        }
    }
}

/// Whether the arguments are `--version --verbose`, in any order.
pub(crate) fn is_verbose_version(arguments: &[OsString]) -> bool {
    let asks =
        |flags: &[&str]| arguments.iter().skip(1).any(|argument| flags.iter().any(|flag| argument == flag));
    arguments.len() == 3 && asks(&["--version", "-V"]) && asks(&["--verbose"])
}

/// Prints all versions.
pub(crate) fn print_verbose(commit: &'static str, out: &mut dyn Write) -> anyhow::Result<()> {
    let versions = Versions::new(commit);
    let list = |pairs: &[(&str, String)]| {
        let pairs: Vec<String> = pairs.iter().map(|(name, version)| format!("{name} {version}")).collect();
        pairs.join("; ")
    };
    writeln!(out, "parlor {}", versions.version)?;
    writeln!(out, "commit    {}", versions.commit)?;
    writeln!(out, "target    {}", versions.target)?;
    writeln!(out, "features  {}", versions.features.join(", "))?;
    writeln!(out, "formats   {}", list(&versions.formats))?;
    writeln!(out, "doors     {}", list(&versions.doors))?;
    Ok(())
}

/// Runs `parlor version`.
pub(crate) fn version(commit: &'static str, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    if options.json {
        let Versions { version, commit, target, features, formats, doors } = Versions::new(commit);
        let object = |pairs: Vec<(&str, String)>| {
            pairs
                .into_iter()
                .map(|(name, version)| (name.to_owned(), version.into()))
                .collect::<serde_json::Map<_, _>>()
        };
        let line = serde_json::json!({
            "version": version, "commit": commit, "target": target, "features": features,
            "formats": object(formats), "doors": object(doors),
        });
        return Ok(json::write_line(out, &line)?);
    }
    if options.verbose {
        return print_verbose(commit, out);
    }
    writeln!(out, "parlor {}", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
