//! The kinds of values that settings take, and their descriptions.

/// The kind of value that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A file, relative to the folder of `parlor.toml`.
    File,
    /// A whole number of days from 1 to [`MAX_DAYS`], or `"never"`.
    Days,
    /// A size such as `"10GiB"`, or `"unlimited"`.
    Size,
    /// A whole number of seconds from 1 to [`MAX_SECONDS`].
    Seconds,
    /// A whole number up to this maximum; 0 or less means the default of the setting.
    UpTo(u64),
    /// A whole number from 1 to [`MAX_LIMIT`], or `"unlimited"`.
    Limit,
    /// An amount in dollars up to [`MAX_DOLLARS`], with or without decimals.
    Dollars,
    /// An amount in dollars up to [`MAX_DOLLARS`], or `"unlimited"`.
    Budget,
    /// `true` or `false`.
    Flag,
    /// A list of tables with texts, each of them a rule of the policy.
    Rules,
    /// A list of texts. Numbers in the list become texts.
    List,
}

/// The largest value of a [`Kind::Days`]: a hundred years.
pub(crate) const MAX_DAYS: u64 = 36_500;
/// The largest number of seconds that a setting takes: a day.
pub(crate) const MAX_SECONDS: u64 = 86_400;
/// The largest value of `channels.supr.max_connections`.
pub(crate) const MAX_SOCKETS: u64 = 100_000;
/// The largest value of a [`Kind::Dollars`] or [`Kind::Budget`].
pub(crate) const MAX_DOLLARS: f64 = 1_000_000.0;
/// The largest value of `models.*.context_window` and `models.*.max_output`, in tokens.
pub(crate) const MAX_WINDOW: u64 = 100_000_000;
/// The largest value of a [`Kind::Limit`].
pub(crate) const MAX_LIMIT: u64 = 1_000_000_000_000;
/// The value of a [`Kind::Days`] without a limit.
pub(crate) const NEVER: &str = "never";
/// The value of a [`Kind::Size`], [`Kind::Limit`] or [`Kind::Budget`] without a limit.
pub(crate) const UNLIMITED: &str = "unlimited";

impl Kind {
    /// Describes the accepted values, in Markdown.
    pub(crate) fn description(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::OneOf(texts) => {
                texts.iter().map(|text| format!("`\"{text}\"`")).collect::<Vec<_>>().join(" or ")
            }
            Self::File => "a file, relative to `parlor.toml`".to_owned(),
            Self::Days => format!("a whole number from 1 to {MAX_DAYS}, or `\"{NEVER}\"`"),
            Self::Seconds => format!("a whole number from 1 to {MAX_SECONDS}"),
            Self::UpTo(max) => format!("a whole number up to {max}; 0 or less is the default"),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::List => "a list of texts".to_owned(),
            Self::Rules => "a list of rules such as `{ command = \"cargo *\" }`".to_owned(),
            Self::Limit => format!("a whole number from 1 to {MAX_LIMIT}, or `\"{UNLIMITED}\"`"),
            Self::Dollars => format!("dollars from 0 to {MAX_DOLLARS}"),
            Self::Budget => format!("dollars from 0 to {MAX_DOLLARS}, or `\"{UNLIMITED}\"`"),
            Self::Size => format!("a size such as `\"500MB\"` or `\"10GiB\"`, or `\"{UNLIMITED}\"`"),
        }
    }
}
