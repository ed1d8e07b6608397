//! Who may use the server: tokens, cookies, one-time links, the users of this machine, and how often they may come.

pub(crate) mod cookie;
pub(crate) mod cors;
pub(crate) mod forwarded;
pub(crate) mod one_time_link;
pub(crate) mod rate;
pub(crate) mod refusal_log;
pub(crate) mod request_source;
pub(crate) mod screen;
pub(crate) mod token;
pub(crate) mod token_store;
pub(crate) mod token_watch;
pub(crate) mod trust;
