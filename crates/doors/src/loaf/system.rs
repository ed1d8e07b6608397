//! `rpc.*`, `system.*`, `state.*` and `debug.*`.

use parlor_vocab::ShutdownSignal;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code::{self, FrameError};
use super::machine::LoafMachine;
use super::params::Params;
use super::pending::To;
use super::{EXTRA_METHODS, METHODS, PROTOCOL_VERSION};

/// The answer to the probe, which is asked for often.
#[derive(Serialize)]
struct Pong {
    ok: bool,
    time: String,
}

impl LoafMachine {
    pub(super) fn ping(&mut self, to: &To) {
        let time = self.out.now().rfc3339();
        self.out.answer_raw(to, &Pong { ok: true, time });
    }

    pub(super) fn handshake(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::optional("rpc.handshake", params)?;
        let version = params.maybe_text("protocol_version")?;
        let is_strict = params.maybe_flag("strict")?;
        let extensions = params.maybe_flag("extensions")?;
        if let Some(version) = version.filter(|version| is_strict && version != PROTOCOL_VERSION) {
            return Err(code::other_version(&version));
        }
        self.out.extensions |= extensions;
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
        self.out.answer(to, result);
        Ok(())
    }

    pub(super) fn shutdown(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let reason = Params::optional("system.shutdown", params)?.maybe_text("reason")?;
        self.begin_to_end(reason.as_deref().unwrap_or("shutdown"));
        let mut result = json!({"accepted": true});
        if let Some(reason) = reason {
            result["reason"] = Value::from(reason);
        }
        self.out.answer(to, result);
        self.out.close();
        Ok(())
    }

    /// Nothing more is begun; what is at work is stopped by whoever ends the connection.
    pub(super) fn begin_to_end(&mut self, reason: &str) {
        self.is_closing = true;
        self.chats.values_mut().for_each(|chat| chat.queue.clear());
        self.changed(reason, None);
    }

    pub(super) fn on_signal(&mut self, signal: ShutdownSignal) {
        self.is_closing = true;
        let reason = match signal {
            ShutdownSignal::Interrupt => "sigint",
            ShutdownSignal::Terminate => "sigterm",
        };
        self.changed(reason, None);
    }

    pub(super) fn tell_state(&mut self, to: &To) {
        let snapshot = self.state.snapshot(&self.order);
        self.out.answer(to, snapshot);
    }

    pub(super) fn set_debug(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let is_on = Params::needed("debug.set", params)?.flag("super_debug")?;
        self.state.super_debug = is_on;
        self.out.answer(to, json!({"super_debug": is_on}));
        Ok(())
    }
}
