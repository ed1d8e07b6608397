//! The names of the protocol: its version and its methods.

/// The version of the protocol.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// The methods that every server of this version has, in alphabetical order.
pub const METHODS: [&str; 29] = [
    "auth.connect.antigravity",
    "auth.connect.openai",
    "auth.set.exa_key",
    "auth.set.openrouter_key",
    "auth.status",
    "command.execute",
    "debug.set",
    "history.clear_session",
    "history.get",
    "history.list",
    "limits.get",
    "model.list",
    "model.openrouter.providers",
    "model.select",
    "onboarding.complete",
    "onboarding.status",
    "rpc.handshake",
    "session.create",
    "session.get",
    "session.interrupt",
    "session.queue.clear",
    "session.queue.list",
    "session.send",
    "session.steer",
    "skills.list",
    "state.get",
    "system.ping",
    "system.shutdown",
    "tools.list",
];

/// The methods that only parlor has, in alphabetical order.
pub const EXTRA_METHODS: [&str; 7] = [
    "auth.cancel",
    "auth.logout",
    "events.replay",
    "session.answer",
    "session.close",
    "session.list",
    "session.rename",
];
