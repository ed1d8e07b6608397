//! The `rpc.*`, `system.*`, `state.*` and `debug.*` methods.

use parlor_vocab::ShutdownSignal;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code::{self, FrameError};
use super::machine::LoafMachine;
use super::params::Params;
use super::pending::ReplyTo;
use super::{EXTRA_METHODS, MAX_CLIENT_NAME_CHARS, METHODS, PROTOCOL_VERSION};

/// The result of `system.ping`. Clients ping often, so it is a type and not a JSON tree.
#[derive(Serialize)]
struct Pong {
    ok: bool,
    time: String,
}

impl LoafMachine {
    pub(super) fn ping(&mut self, reply_to: &ReplyTo) {
        let time = self.out.now().rfc3339();
        self.out.send_serialized(reply_to, &Pong { ok: true, time });
    }

    pub(super) fn handshake(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::optional("rpc.handshake", params)?;
        let version = params.optional_text("protocol_version")?;
        let is_strict = params.optional_flag("strict")?;
        let extensions = params.optional_flag("extensions")?;
        if let Some(version) = version.filter(|version| is_strict && version != PROTOCOL_VERSION) {
            return Err(code::other_version(&version));
        }
        self.out.extensions |= extensions;
        // The member is informational, so a name that is not a text is no error.
        let name = params.optional_text("client_name").ok().flatten();
        self.out.client_name = name.map(|name| name.chars().take(MAX_CLIENT_NAME_CHARS).collect());
        let capabilities = json!({
            "events": true,
            "command_execute": true,
            "multi_session": true,
            "image_inputs": ["path", "data_url"],
            "extensions": {"methods": EXTRA_METHODS, "enabled": self.out.extensions},
        });
        let result = json!({
            "protocol_version": PROTOCOL_VERSION,
            "server_name": "loaf",
            "capabilities": capabilities,
            "methods": METHODS,
        });
        self.out.send_result(reply_to, result);
        Ok(())
    }

    pub(super) fn shutdown(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let reason = Params::optional("system.shutdown", params)?.optional_text("reason")?;
        self.begin_shutdown(reason.as_deref().unwrap_or("shutdown"));
        let mut result = json!({"accepted": true});
        if let Some(reason) = reason {
            result["reason"] = Value::from(reason);
        }
        self.out.send_result(reply_to, result);
        self.out.close();
        Ok(())
    }

    /// Starts nothing new. The driver stops the running turns when it closes the connection.
    pub(super) fn begin_shutdown(&mut self, reason: &str) {
        self.is_closing = true;
        self.chats.values_mut().for_each(|chat| chat.queue.clear());
        self.send_state_changed(reason, None);
    }

    pub(super) fn on_signal(&mut self, signal: ShutdownSignal) {
        self.is_closing = true;
        let reason = match signal {
            ShutdownSignal::Interrupt => "sigint",
            ShutdownSignal::Terminate => "sigterm",
        };
        self.send_state_changed(reason, None);
    }

    pub(super) fn send_state(&mut self, reply_to: &ReplyTo) {
        let snapshot = self.state.snapshot(&self.order);
        self.out.send_result(reply_to, snapshot);
    }

    pub(super) fn set_debug(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let is_enabled = Params::required("debug.set", params)?.flag("super_debug")?;
        self.state.super_debug = is_enabled;
        self.out.send_result(reply_to, json!({"super_debug": is_enabled}));
        Ok(())
    }
}
