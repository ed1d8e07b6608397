//! `initialize`: what the client can show, and what this door promises.

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentAuthCapabilities, AgentCapabilities, AuthMethod, AuthMethodAgent, AuthMethodTerminal,
    ClientCapabilities, Error, Implementation, InitializeRequest, InitializeResponse, LogoutCapabilities,
    McpCapabilities, Meta, PromptCapabilities, RequestId, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionListCapabilities, SessionResumeCapabilities,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::code;
use super::dispatch::decode;
use super::machine::AcpMachine;
use super::open_session::Gates;
use super::params::AcpParams;

/// How much of the client's name is recorded.
const CLIENT_NAME_BYTES: usize = 100;

impl AcpMachine {
    pub(super) fn initialize(&mut self, id: &RequestId, params: Option<&RawValue>) -> Result<(), Error> {
        if self.is_initialized {
            return Err(code::invalid_request("`initialize` was answered before"));
        }
        let request: InitializeRequest = decode(params)?;
        let mut gates = gates(&request.client_capabilities);
        let methods = auth_methods(&self.params, &request.client_capabilities, gates);
        gates.can_log_in = !methods.is_empty();
        self.gates = gates;
        let client = request.client_info.map(|info| info.title.unwrap_or(info.name));
        self.client = client.map(|name| crate::truncate::truncate_bytes(name, CLIENT_NAME_BYTES));
        self.is_initialized = true;
        let logout = (!self.params.logins.is_empty()).then(LogoutCapabilities::new);
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .mcp_capabilities(McpCapabilities::new().http(true))
            .session_capabilities(
                SessionCapabilities::new()
                    .list(SessionListCapabilities::new())
                    .resume(SessionResumeCapabilities::new())
                    .close(SessionCloseCapabilities::new())
                    .delete(SessionDeleteCapabilities::new()),
            )
            .auth(AgentAuthCapabilities::new().logout(logout));
        let info = Implementation::new("parlor", env!("CARGO_PKG_VERSION")).title("Parlor".to_owned());
        let steering = Meta::from_iter([("steering".to_owned(), json!({"supported": true}))]);
        // There is no other version yet, so the answer is the same for whatever the client asked for.
        let response = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .agent_info(info)
            .auth_methods(methods)
            .meta(steering);
        self.out.result(id, &response);
        Ok(())
    }
}

fn gates(capabilities: &ClientCapabilities) -> Gates {
    let session = capabilities.session.as_ref();
    let meta = |name: &str| capabilities.meta.as_ref().and_then(|meta| meta.get(name));
    Gates {
        terminal_output: meta("terminal_output") == Some(&Value::Bool(true)),
        notices: session.is_some_and(|session| session.notices.is_some()),
        compaction: session.is_some_and(|session| session.compaction.is_some()),
        elicitation_url: capabilities.elicitation.as_ref().is_some_and(|modes| modes.url.is_some()),
        can_log_in: false,
    }
}

/// The ways to log in: by this process if the user can see the provider's page, and in a terminal of the client.
fn auth_methods(params: &AcpParams, capabilities: &ClientCapabilities, gates: Gates) -> Vec<AuthMethod> {
    let mut methods = Vec::new();
    if gates.elicitation_url || params.has_screen {
        for provider in &params.logins {
            let method = AuthMethodAgent::new(provider.clone(), format!("Log in to {provider}"))
                .description("Opens the provider's page in a browser".to_owned());
            methods.push(AuthMethod::Agent(method));
        }
    }
    if capabilities.auth.terminal {
        for provider in &params.logins {
            let id = format!("terminal-{provider}");
            let method = AuthMethodTerminal::new(id, format!("Log in to {provider} in a terminal"))
                .args(vec!["--login".to_owned(), provider.clone()]);
            methods.push(AuthMethod::Terminal(method));
        }
        for service in &params.key_services {
            let method =
                AuthMethodTerminal::new(format!("key-{service}"), format!("Enter a key of {service}"))
                    .description("Asks for an API key and stores it".to_owned())
                    .args(vec!["--login".to_owned(), service.clone(), "--key".to_owned()]);
            methods.push(AuthMethod::Terminal(method));
        }
    }
    methods
}
