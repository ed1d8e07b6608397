//! What settings take, and the words for it.

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
    /// A number up to this one; 0 or less is the default.
    UpTo(u64),
    /// A whole number from 1, or `"unlimited"`.
    Limit,
    /// Dollars, with decimals or without.
    Dollars,
    /// Dollars, or `"unlimited"`.
    Budget,
    /// `true` or `false`.
    Flag,
    /// A list of texts. Numbers are taken as texts.
    List,
}

/// The most days that can be asked for: a hundred years.
pub(crate) const MAX_DAYS: u64 = 36_500;
/// The most seconds that can be asked for: a day.
pub(crate) const MAX_SECONDS: u64 = 86_400;
/// The most sockets that can be asked for.
pub(crate) const MAX_SOCKETS: u64 = 100_000;
/// The most dollars that can be asked for.
pub(crate) const MAX_DOLLARS: f64 = 1_000_000.0;
/// The largest window of a model that can be asked for, in tokens.
pub(crate) const MAX_WINDOW: u64 = 100_000_000;
/// The largest limit that can be asked for.
pub(crate) const MAX_LIMIT: u64 = 1_000_000_000_000;
/// The word for no limit of days.
pub(crate) const NEVER: &str = "never";
/// The word for no limit of size.
pub(crate) const UNLIMITED: &str = "unlimited";

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
            Self::UpTo(most) => format!("a whole number up to {most}; 0 or less is the default"),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::List => "a list of texts".to_owned(),
            Self::Limit => format!("a whole number from 1 to {MAX_LIMIT}, or `\"{UNLIMITED}\"`"),
            Self::Dollars => format!("dollars from 0 to {MAX_DOLLARS}"),
            Self::Budget => format!("dollars from 0 to {MAX_DOLLARS}, or `\"{UNLIMITED}\"`"),
            Self::Size => format!("a size such as `\"500MB\"` or `\"10GiB\"`, or `\"{UNLIMITED}\"`"),
        }
    }
}
