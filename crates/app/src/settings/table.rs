//! The table of all settings. The checks of `parlor.toml`, `docs/settings.md` and the error messages are derived from it.

mod agents;
mod channels;
mod runtime;

pub(crate) use super::kind::{Kind, MAX_DAYS, MAX_DOLLARS, MAX_LIMIT, MAX_SECONDS, NEVER, UNLIMITED};

/// One setting of `parlor.toml`.
pub(crate) struct Setting {
    /// The path in the file, with dots; `*` stands for a name that the user chooses.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// A description of the default, in Markdown.
    pub(crate) default: &'static str,
    /// A description of the setting, in Markdown.
    pub(crate) doc: &'static str,
}

/// The largest size of `parlor.toml`, in bytes.
pub(crate) const SETTINGS_BYTES: u64 = 1 << 20;

/// All settings, in the order of `docs/settings.md`.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    agents::SETTINGS.iter().chain(channels::SETTINGS).chain(runtime::SETTINGS)
}
