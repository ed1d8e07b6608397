//! Sessions with a model, against `@copilotkit/aimock` (npm), a server of model APIs that others wrote, in the forms
//! of OpenAI chat, OpenAI responses and Anthropic. `server.rs` is a small server of ours for what aimock cannot
//! express: a stream that is cut after it has shown something, one that hangs, and inputs that are no JSON (aimock
//! sends whole answers at once, and only arguments that can be read).

#[path = "../home/mod.rs"]
mod home;

mod advice;
mod attacker;
mod broken;
mod commands;
mod crash;
mod door;
mod forms;
mod hostile;
mod images;
mod keys;
mod leaks;
mod long;
mod mock;
mod others;
mod page;
mod repository;
mod scenarios;
mod server;
mod writing;
