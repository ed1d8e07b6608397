//! The MCP servers that a client brings for a session. They contain secrets, so no text quotes them.

use std::time::Instant;

use agent_client_protocol_schema::v1::{Error, McpServer};
use parlor_vocab::{ClientMcpServer, ClientMcpTransport, FrontendReply, FrontendRequest, SessionId};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::machine::{AcpMachine, Answer};
use super::pending::{Pending, ServersUse};
use super::{MAX_MCP_SERVER_BYTES, MAX_MCP_SERVERS, code};

/// The servers of a request.
#[derive(Debug, Default)]
pub(super) struct RequestedServers {
    pub(super) servers: Vec<ClientMcpServer>,
    /// What the client has to be told about those that are not used.
    pub(super) note: Option<String>,
}

/// Whether the member `mcpServers` may be absent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Servers {
    Required,
    Optional,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    mcp_servers: Option<Vec<McpServer>>,
}

impl RequestedServers {
    pub(super) fn decode(params: Option<&RawValue>, servers: Servers) -> Result<Self, Error> {
        let has_member = |raw: &RawValue| {
            serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(raw.get())
                .is_ok_and(|members| members.contains_key("mcpServers"))
        };
        if servers == Servers::Required && !params.is_some_and(has_member) {
            return Err(code::invalid_params("missing field `mcpServers`"));
        }
        let params: Params = params
            .map_or(Ok(Params { mcp_servers: None }), |raw| serde_json::from_str(raw.get()))
            .map_err(|_| code::invalid_mcp_servers())?;
        let mut requested = Self::default();
        for server in params.mcp_servers.unwrap_or_default() {
            match client_server(server) {
                Some(server) if bytes(&server) > MAX_MCP_SERVER_BYTES => {
                    return Err(code::mcp_server_too_long());
                }
                Some(server) if requested.servers.len() < MAX_MCP_SERVERS => requested.servers.push(server),
                Some(_) => {
                    let note =
                        format!("Parlor uses only the first {MAX_MCP_SERVERS} MCP servers of the editor.");
                    requested.note = Some(note);
                }
                None => {
                    let note =
                        "Parlor does not use MCP servers of the type `sse`; the type `http` replaces it.";
                    requested.note.get_or_insert_with(|| note.to_owned());
                }
            }
        }
        Ok(requested)
    }
}

/// The server in the words of the backend. `None` if this door does not support its transport.
fn client_server(server: McpServer) -> Option<ClientMcpServer> {
    match server {
        McpServer::Stdio(server) => {
            let env = server.env.into_iter().map(|variable| (variable.name, variable.value)).collect();
            let command = server.command.into_os_string().into_string().ok()?;
            let transport = ClientMcpTransport::Program { command, args: server.args, env };
            Some(ClientMcpServer { name: server.name, transport })
        }
        McpServer::Http(server) => {
            let headers = server.headers.into_iter().map(|header| (header.name, header.value)).collect();
            let transport = ClientMcpTransport::Http { url: server.url, headers };
            Some(ClientMcpServer { name: server.name, transport })
        }
        McpServer::Sse(_) | _ => None,
    }
}

fn bytes(server: &ClientMcpServer) -> usize {
    let pairs = |pairs: &[(String, String)]| -> usize {
        pairs.iter().map(|(name, value)| name.len() + value.len()).sum()
    };
    server.name.len()
        + match &server.transport {
            ClientMcpTransport::Program { command, args, env } => {
                command.len() + args.iter().map(String::len).sum::<usize>() + pairs(env)
            }
            ClientMcpTransport::Http { url, headers } => url.len() + pairs(headers),
        }
}

impl AcpMachine {
    /// Gives the session these servers, if it has some or had some, and goes on with `then`.
    pub(super) fn use_servers(
        &mut self,
        now: Instant,
        session: SessionId,
        requested: RequestedServers,
        then: ServersUse,
    ) {
        let Some(open) = self.sessions.get_mut(&session) else { return };
        if requested.note.is_some() {
            open.note = requested.note;
        }
        if requested.servers.is_empty() && !open.uses_servers {
            return self.go_on(now, &session, then);
        }
        open.uses_servers = !requested.servers.is_empty();
        let (folder, servers) = (open.folder.clone(), requested.servers);
        let request = FrontendRequest::UseMcpServers { session: session.clone(), folder, servers };
        self.out.submit(request, Pending::UseServers(session, then));
    }

    pub(super) fn on_servers_used(
        &mut self,
        now: Instant,
        session: &SessionId,
        then: ServersUse,
        answer: Answer,
    ) {
        let missing = match answer {
            Ok(FrontendReply::McpServers(missing)) => missing.join(" "),
            _ => "The MCP servers of the editor are not used, because too many requests are under way."
                .to_owned(),
        };
        if let Some(open) = self.sessions.get_mut(session)
            && !missing.is_empty()
        {
            open.note = Some(open.note.take().map_or(missing.clone(), |note| format!("{note} {missing}")));
        }
        self.go_on(now, session, then);
    }

    fn go_on(&mut self, now: Instant, session: &SessionId, then: ServersUse) {
        match then {
            ServersUse::Watch(after) => self.watch(session.clone(), after),
            ServersUse::Resumed(id) => self.answer_resumed(now, &id, session),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(servers: &serde_json::Value) -> Result<RequestedServers, Error> {
        let params = serde_json::value::to_raw_value(&json!({"mcpServers": servers})).unwrap();
        RequestedServers::decode(Some(&params), Servers::Required)
    }

    fn program(command: &str) -> serde_json::Value {
        json!({"name": "a", "command": command, "args": null, "env": []})
    }

    #[test]
    fn a_session_has_a_limited_number_of_servers() {
        let all = decode(&json!(vec![program("npx"); MAX_MCP_SERVERS])).unwrap();
        assert_eq!((all.servers.len(), all.note), (MAX_MCP_SERVERS, None));
        let more = decode(&json!(vec![program("npx"); MAX_MCP_SERVERS + 1])).unwrap();
        assert!(
            more.servers.len() == MAX_MCP_SERVERS && more.note.is_some_and(|note| note.contains("first 32"))
        );
    }

    #[test]
    fn a_server_with_long_texts_is_refused_without_quoting_it() {
        let long = |extra: usize| program(&"x".repeat(MAX_MCP_SERVER_BYTES - 1 + extra));
        assert_eq!(decode(&json!([long(0)])).unwrap().servers.len(), 1);
        let error = decode(&json!([long(1)])).unwrap_err();
        assert!(i32::from(error.code) == -32602 && !error.message.contains("xx"), "{error:?}");
    }
}
