//! The kinds of values that settings take, and their descriptions.

/// The kind of value that a setting takes.
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
    /// A whole number up to this one; 0 or less means the default.
    UpTo(u64),
    /// A whole number from 1, or `"unlimited"`.
    Limit,
    /// Dollars, with decimals or without.
    Dollars,
    /// Dollars, or `"unlimited"`.
    Budget,
    /// `true` or `false`.
    Flag,
    /// A list of texts. Numbers in the list become texts.
    List,
}

/// The largest number of days: a hundred years.
pub(crate) const MAX_DAYS: u64 = 36_500;
/// The largest number of seconds: a day.
pub(crate) const MAX_SECONDS: u64 = 86_400;
/// The largest number of sockets.
pub(crate) const MAX_SOCKETS: u64 = 100_000;
/// The largest amount in dollars.
pub(crate) const MAX_DOLLARS: f64 = 1_000_000.0;
/// The largest context window of a model, in tokens.
pub(crate) const MAX_WINDOW: u64 = 100_000_000;
/// The largest value of a [`Kind::Limit`].
pub(crate) const MAX_LIMIT: u64 = 1_000_000_000_000;
/// The value that stands for no limit of days.
pub(crate) const NEVER: &str = "never";
/// The value that stands for no limit of size, number or cost.
pub(crate) const UNLIMITED: &str = "unlimited";

impl Kind {
    /// A description for people, with Markdown code marks.
    pub(crate) fn description(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Word(words) => {
                words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(" or ")
            }
            Self::File => "a file, relative to `parlor.toml`".to_owned(),
            Self::Days => format!("a whole number from 1 to {MAX_DAYS}, or `\"{NEVER}\"`"),
            Self::Seconds => format!("a whole number from 1 to {MAX_SECONDS}"),
            Self::UpTo(max) => format!("a whole number up to {max}; 0 or less is the default"),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::List => "a list of texts".to_owned(),
            Self::Limit => format!("a whole number from 1 to {MAX_LIMIT}, or `\"{UNLIMITED}\"`"),
            Self::Dollars => format!("dollars from 0 to {MAX_DOLLARS}"),
            Self::Budget => format!("dollars from 0 to {MAX_DOLLARS}, or `\"{UNLIMITED}\"`"),
            Self::Size => format!("a size such as `\"500MB\"` or `\"10GiB\"`, or `\"{UNLIMITED}\"`"),
        }
    }
}
