//! The supr door: what stands behind each WebSocket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use async_trait::async_trait;
use parlor_doors::supr::{SuprMachine, Visit};
use parlor_doors::{Input, Machine, Output};
use parlor_engine::{Guest, House, Standing};
use parlor_host::web::{Arrival, Menu, Metrics, Reception, Stop};
use parlor_host::{Keepalive, Socket, serve_socket};
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_vocab::{Clock, HouseCommand, HouseEvent, HouseReply, IdSource, SessionId};

use super::choices::Choices;
use crate::settings::supr::SuprConfig;

/// Who everybody is, in `allow_from`: there is one token, so there is one user.
const USER: &str = "supr-user";
const CANONICAL_USER: &str = "supr:supr-user";

/// Where sockets arrive.
pub(super) struct SuprReception {
    house: Arc<House>,
    metrics: Arc<Metrics>,
    keepalive: Keepalive,
    may_send: bool,
    menu: Arc<Choices>,
    folder: PathBuf,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl SuprReception {
    /// In front of `house`.
    pub(super) fn new(
        config: &SuprConfig,
        house: &Arc<House>,
        metrics: &Arc<Metrics>,
        menu: Arc<Choices>,
    ) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(Self {
            house: Arc::clone(house),
            metrics: Arc::clone(metrics),
            keepalive: config.keepalive,
            may_send: may_send(&config.allow_from),
            menu,
            folder: std::env::current_dir().context("the working folder is gone")?,
            ids: Arc::new(TimeOrderedIds::new(Arc::clone(&clock))),
            clock,
        })
    }

    async fn visit(&self, arrival: Arrival) -> Visit {
        let session = |id: &str| SessionId::parse(id).expect("the length was checked in the handshake");
        let mut agents = self.menu.agents().await;
        agents.sort_by_key(|agent| !agent.is_default);
        let agents = agents.into_iter().map(|agent| (agent.id, agent.name)).collect();
        Visit {
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
impl Reception for SuprReception {
    async fn receive(&self, arrival: Arrival, socket: Socket, stop: Stop) {
        let machine = SuprMachine::new(self.visit(arrival).await);
        let machine = Counted { machine, metrics: Arc::clone(&self.metrics) };
        let guest = Guest::new(Arc::clone(&self.house), Standing::Visitor);
        serve_socket(machine, guest, socket, &self.keepalive, stop.asked()).await;
    }
}

/// A machine whose frames are counted.
struct Counted {
    machine: SuprMachine,
    metrics: Arc<Metrics>,
}

impl Machine for Counted {
    type Ask = HouseCommand;
    type Reply = HouseReply;
    type Event = HouseEvent;

    fn handle(&mut self, now: Instant, input: Input<'_, HouseReply, HouseEvent>) {
        if matches!(input, Input::Frame(_)) {
            self.metrics.frames_received.inc();
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<HouseCommand>> {
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
