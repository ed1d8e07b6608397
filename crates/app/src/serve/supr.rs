//! The supr door: what stands behind each WebSocket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use async_trait::async_trait;
use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_doors::{Input, InputOf, Machine, Output};
use parlor_engine::{OnDisconnect, SessionClient, Sessions};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_transport::{Keepalive, Socket, serve_socket};
use parlor_vocab::{
    Clock, IdSource, RegistryEvent, RegistryReply, RegistryRequest, SessionId, SessionRefusal,
};
use parlor_web::{HandshakeQuery, Metrics, ModelMenu, SocketHandler, StopSignal};

use super::choices::ModelMenuSource;
use crate::settings::supr::SuprConfig;

/// Who everybody is, in `allow_from`: there is one token, so there is one user.
const USER: &str = "supr-user";
const CANONICAL_USER: &str = "supr:supr-user";

/// Where sockets arrive.
pub(super) struct SuprSockets {
    sessions: Arc<Sessions>,
    metrics: Arc<Metrics>,
    keepalive: Keepalive,
    may_send: bool,
    menu: Arc<ModelMenuSource>,
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl SuprSockets {
    /// In front of `sessions`.
    pub(super) fn new(
        config: &SuprConfig,
        sessions: &Arc<Sessions>,
        metrics: &Arc<Metrics>,
        menu: Arc<ModelMenuSource>,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            sessions: Arc::clone(sessions),
            metrics: Arc::clone(metrics),
            keepalive: config.keepalive,
            may_send: may_send(&config.allow_from),
            menu,
            folder: std::env::current_dir().context("the working folder is gone")?,
            ids: Arc::new(TimeOrderedIds::new(Arc::clone(&clock))),
            clock,
        })
    }

    async fn visit(&self, arrival: HandshakeQuery) -> ConnectionParams {
        let session = |id: &str| SessionId::parse(id).expect("the length was checked in the handshake");
        let mut agents = self.menu.agents().await;
        agents.sort_by_key(|agent| !agent.is_default);
        let agents = agents.into_iter().map(|agent| (agent.id, agent.name)).collect();
        ConnectionParams {
            session: session(&arrival.session),
            after: arrival.after.map(|event| Some(event).filter(|event| !event.is_empty())),
            watch: arrival.watch.iter().map(|id| session(id)).collect(),
            streams: arrival.streams,
            may_send: self.may_send,
            traceparent: arrival.traceparent.map(|trace| trace.to_string()),
            agents,
            folder: self.folder.clone(),
            clock: Arc::clone(&self.clock),
            ids: Arc::clone(&self.ids),
        }
    }
}

/// Whether clients may do more than look.
pub(super) fn may_send(allow_from: &[String]) -> bool {
    let is_us = |who: &String| who == USER || who.eq_ignore_ascii_case(CANONICAL_USER);
    allow_from.is_empty() || allow_from.iter().any(is_us)
}

#[async_trait]
impl SocketHandler for SuprSockets {
    async fn receive(&self, arrival: HandshakeQuery, socket: Socket, stop: StopSignal) {
        let machine = SuprMachine::new(self.visit(arrival).await);
        let machine = Counted { machine, metrics: Arc::clone(&self.metrics) };
        let client = SessionClient::new(Arc::clone(&self.sessions), OnDisconnect::Keep);
        serve_socket(machine, client, socket, &self.keepalive, stop.asked()).await;
    }
}

/// A machine whose frames are counted.
struct Counted {
    machine: SuprMachine,
    metrics: Arc<Metrics>,
}

impl Machine for Counted {
    type Request = RegistryRequest;
    type Reply = RegistryReply;
    type Event = RegistryEvent;
    type Error = SessionRefusal;

    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>) {
        if matches!(input, Input::Frame(_)) {
            self.metrics.frames_received.inc();
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<RegistryRequest>> {
        let output = self.machine.poll();
        if matches!(output, Some(Output::Send(_))) {
            self.metrics.frames_sent.inc();
        }
        output
    }

    fn wants_frame(&self) -> bool {
        self.machine.wants_frame()
    }

    fn is_at_work(&self) -> bool {
        self.machine.is_at_work()
    }

    fn max_line_bytes(&self) -> usize {
        self.machine.max_line_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_one_user() {
        let may = |names: &[&str]| may_send(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert!(may(&[]) && may(&["telegram:1", "supr-user"]) && may(&["SUPR:supr-USER"]));
        assert!(!may(&["telegram:1"]) && !may(&["Supr-User"]));
    }
}
