//! Serves one client of the supr door: joins its machine with the sessions.

use std::sync::Arc;

use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_engine::{OnDisconnect, SessionClient};
use parlor_transport::{Socket, serve_socket};
use parlor_vocab::SessionId;

use super::connections::StopSignal;
use super::handshake_query::HandshakeQuery;
use crate::site::Site;

/// Prepares to serve a client. The future that it returns serves the client until it disconnects or has to stop.
pub(super) async fn serve_supr(
    site: &Site,
    query: HandshakeQuery,
    socket: Socket,
    stop: StopSignal,
) -> impl Future<Output = ()> + use<> {
    let machine = SuprMachine::new(connection_params(site, query).await);
    let client = SessionClient::new(Arc::clone(&site.deps.sessions), OnDisconnect::Keep);
    serve_socket(
        machine,
        client,
        socket,
        site.deps.settings.keepalive,
        Arc::clone(&site.count_frame),
        stop.stopped(),
    )
}

async fn connection_params(site: &Site, query: HandshakeQuery) -> ConnectionParams {
    let session = |id: &str| SessionId::parse(id).expect("the handshake checked the length");
    let mut agents = site.deps.catalog.now().available_agents().await;
    agents.sort_by_key(|agent| !agent.is_default);
    let agents = agents.into_iter().map(|agent| (agent.id, agent.name)).collect();
    ConnectionParams {
        session: session(&query.session),
        after: query.after.map(|event| Some(event).filter(|event| !event.is_empty())),
        watch: query.watch.iter().map(|id| session(id)).collect(),
        streams: query.streams,
        may_send: site.deps.settings.may_send,
        traceparent: query.traceparent.map(|trace| trace.to_string()),
        agents,
        folder: site.deps.settings.folder.clone(),
        frames: Arc::clone(&site.supr_frames),
        clock: Arc::clone(&site.deps.clock),
        ids: Arc::clone(&site.ids),
    }
}
