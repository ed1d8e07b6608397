//! Every setting there is: what is read, what is documented and what a mistake is compared with.

/// One setting of `parlor.toml`.
pub(crate) struct Setting {
    /// Its name from the top of the file; `*` stands for a name that the user chooses.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: Kind,
    /// What holds without it, in words.
    pub(crate) default: &'static str,
    /// What it is for.
    pub(crate) doc: &'static str,
}

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A file, relative to the folder of `parlor.toml`.
    File,
    /// A number of days from 1 to [`MAX_DAYS`], or `"never"`.
    Days,
    /// A size such as `"10GiB"`, or `"unlimited"`.
    Size,
    /// A number of seconds from 1 to [`MAX_SECONDS`].
    Seconds,
}

/// The most days that can be asked for: a hundred years.
pub(crate) const MAX_DAYS: u64 = 36_500;
/// The most seconds that can be asked for: a day.
pub(crate) const MAX_SECONDS: u64 = 86_400;
/// The word for no limit of days.
pub(crate) const NEVER: &str = "never";
/// The word for no limit of size.
pub(crate) const UNLIMITED: &str = "unlimited";

/// The largest `parlor.toml` that is read.
pub(crate) const SETTINGS_BYTES: u64 = 1 << 20;

/// All of them, in the order of the page.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "default_agent",
        kind: Kind::Text,
        default: "`local`",
        doc: "The agent that answers where nobody is asked for: one of `[agents]`, or `local`, which is always there.",
    },
    Setting {
        name: "agents.*.kind",
        kind: Kind::Word(&["local", "script"]),
        default: "required",
        doc: "What kind of agent it is; `docs/agents.md` describes them.",
    },
    Setting {
        name: "agents.*.name",
        kind: Kind::Text,
        default: "its name in the file",
        doc: "What people call it.",
    },
    Setting {
        name: "agents.*.file",
        kind: Kind::File,
        default: "required for `script`",
        doc: "The script. Only for `kind = \"script\"`.",
    },
    Setting {
        name: "channels.supex.listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:9876\"`",
        doc: "Where `parlor serve` opens the Supex bridge: a host and a port. `--supex`, `SUPEX_HOST` and `SUPEX_PORT` go before.",
    },
    Setting {
        name: "channels.supex.repl_listen",
        kind: Kind::Text,
        default: "`\"127.0.0.1:4433\"`",
        doc: "Where it opens the Supex REPL. `--supex-repl`, `SUPEX_REPL_HOST` and `SUPEX_REPL_PORT` go before.",
    },
    Setting {
        name: "channels.supex.token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that Supex clients must send. With it they can use parlor's own tools. `SUPEX_AUTH_TOKEN` goes before.",
    },
    Setting {
        name: "channels.supex.allowed_roots",
        kind: Kind::Text,
        default: "none",
        doc: "Folders, separated by colons, whose files Supex clients may name; `*` is everything. `SUPEX_ALLOWED_ROOTS` goes before.",
    },
    Setting {
        name: "channels.supex.eval_timeout",
        kind: Kind::Seconds,
        default: "`60`",
        doc: "How many seconds one evaluation of Ruby may take.",
    },
    Setting {
        name: "channels.supex.memory_limit",
        kind: Kind::Size,
        default: "`\"1GiB\"`",
        doc: "How much memory Ruby may use.",
    },
    Setting {
        name: "channels.supex.upstream",
        kind: Kind::Text,
        default: "none",
        doc: "A SketchUp runtime, as host and port, that tools which need SketchUp are forwarded to.",
    },
    Setting {
        name: "channels.supex.upstream_token",
        kind: Kind::Text,
        default: "none",
        doc: "The secret that this runtime asks for.",
    },
    Setting {
        name: "channels.supex.eval",
        kind: Kind::Word(&["upstream", "here"]),
        default: "`\"upstream\"`",
        doc: "Where Ruby is evaluated if there is an `upstream`: in that runtime, or in parlor's own Ruby. Consoles always use the latter.",
    },
    Setting {
        name: "retention.days",
        kind: Kind::Days,
        default: "`90`",
        doc: "`parlor gc` deletes sessions that were not used for so many days.",
    },
    Setting {
        name: "retention.max_size",
        kind: Kind::Size,
        default: "`\"10GiB\"`",
        doc: "`parlor gc` deletes the sessions that were not used for longest, until all that is kept is no larger.",
    },
];

impl Kind {
    /// What it takes, in words.
    pub(crate) fn in_words(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Word(words) => {
                words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or ")
            }
            Self::File => "a file, relative to `parlor.toml`".to_owned(),
            Self::Days => format!("a whole number from 1 to {MAX_DAYS}, or `\"{NEVER}\"`"),
            Self::Seconds => format!("a whole number from 1 to {MAX_SECONDS}"),
            Self::Size => format!("a size such as `\"500MB\"` or `\"10GiB\"`, or `\"{UNLIMITED}\"`"),
        }
    }
}

/// The setting of that path, if there is one.
pub(crate) fn find(path: &[&str]) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let parts: Vec<&str> = setting.name.split('.').collect();
        parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
    })
}

/// What can stand in the table of that path: the names of its settings and tables. `None` if there
/// is no such table; `*` if the user chooses.
pub(crate) fn members(table: &[&str]) -> Option<Vec<&'static str>> {
    let mut members: Vec<&'static str> = SETTINGS
        .iter()
        .filter_map(|setting| {
            let mut parts = setting.name.split('.');
            let leads_here =
                table.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == *name));
            leads_here.then(|| parts.next()).flatten()
        })
        .collect();
    members.dedup();
    (!members.is_empty()).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_path() {
        assert_eq!(find(&["agents", "x", "kind"]).map(|setting| setting.name), Some("agents.*.kind"));
        assert!(find(&["agents", "x"]).is_none() && find(&["kind"]).is_none());
    }

    #[test]
    fn tables_know_their_members() {
        assert_eq!(members(&[]), Some(vec!["default_agent", "agents", "channels", "retention"]));
        assert_eq!(members(&["agents"]), Some(vec!["*"]));
        assert_eq!(members(&["agents", "x"]), Some(vec!["kind", "name", "file"]));
        assert_eq!(members(&["nothing"]), None);
        assert_eq!(members(&["default_agent"]), None);
    }
}
