//! Sessions with a model, in the API formats of OpenAI chat, OpenAI responses and Anthropic. Most tests run against
//! `@copilotkit/aimock` (npm), a third-party mock of model APIs. `scripted_server.rs` is our own small server for
//! what aimock cannot do: a stream that is cut in the middle, a stream that hangs, and tool arguments that are not
//! JSON (aimock sends whole answers at once, and only valid arguments).

#[path = "../home/mod.rs"]
mod home;

mod acp_child;
mod agent_choice;
mod aimock;
mod api_format;
mod attachments;
mod attacking_server;
mod broken_streams;
mod catalogue;
#[path = "../supr/client.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "these tests use only some helpers, which panic as the tests would"
)]
mod client;
mod commands;
mod crash;
mod docs_page;
mod error_advice;
mod hostile_repository;
mod hostile_server;
mod images;
mod keys;
mod leaks;
mod loaf_child;
mod long_run;
mod model_session;
mod other_providers;
mod outputs;
mod project_servers;
mod project_trust;
mod refused_prompts;
mod scenarios;
mod scripted_server;
#[path = "../supr/server.rs"]
#[allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "these tests use only some helpers, which start the program as a shell would and panic as the tests would"
)]
mod server;
mod streamed_calls;
mod synaps_child;
