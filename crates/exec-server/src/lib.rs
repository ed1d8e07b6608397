//! `codex-exec-server`: start and control processes over newline-delimited JSON-RPC on stdio.
//!
//! This crate is a front: the binary of the same name, [`run_main`] for embedding the server in
//! another binary, the client, and the wire types. The server itself is parlor's exec door
//! (`docs/protocols/exec.md`).
//!
//! A program can be both ends. This one starts itself as the server, runs a process on it and
//! reads what it prints:
//!
//! ```standalone_crate
//! use codex_exec_server::{ExecParams, ExecServerClient, ExecServerLaunchCommand};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     if std::env::args().nth(1).as_deref() == Some("serve") {
//!         return Ok(codex_exec_server::run_main().await?);
//!     }
//!     let mut server = ExecServerLaunchCommand::new(std::env::current_exe()?);
//!     server.args = vec!["serve".to_owned()];
//!     let client = ExecServerClient::spawn(server).await?;
//!
//!     let params = ExecParams::new("hello", ["/bin/sh", "-c", "echo hello; exit 3"], "/");
//!     let mut process = client.start_process(params).await?;
//!     let mut said = Vec::new();
//!     while let Some(output) = process.next_output().await? {
//!         said.extend(output.bytes);
//!     }
//!     assert_eq!(said, b"hello\n");
//!     assert_eq!(process.wait().await?, 3);
//!     Ok(())
//! }
//! ```

pub use parlor_client::exec::{
    ExecFinished, ExecOutput, ExecServerClient, ExecServerError, ExecServerLaunchCommand, ExecServerProcess,
    MAX_PENDING_CALLS, OUTPUT_BACKLOG_BYTES,
};
pub use parlor_doors::exec::{
    ByteChunk, DEFAULT_OUTPUT_BYTES_CAP, ExecExitedNotification, ExecOutputDeltaNotification,
    ExecOutputStream, ExecParams, ExecResponse, InitializeParams, InitializeResponse, PROTOCOL_VERSION,
    TerminateParams, TerminateResponse, WriteParams, WriteResponse,
};

/// Serves standard input and output until input ends or the program is asked to end (SIGTERM,
/// SIGINT, SIGHUP). All processes that were started are gone when it returns.
///
/// Needs a tokio runtime with I/O and time enabled; one thread is enough. Nothing else in the
/// program may write to standard output.
pub async fn run_main() -> std::io::Result<()> {
    parlor_transport::serve_stdio(
        parlor_doors::exec::ExecMachine::default(),
        parlor_process::Processes::default(),
    )
    .await
}
