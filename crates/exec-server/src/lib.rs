//! `codex-exec-server`: start and control processes over newline-delimited JSON-RPC on stdio.
//!
//! This crate has the binary of the same name, [`run_main`] to embed the server in another binary, the client, and the wire
//! types. It contains no code of its own beyond that: the server is parlor's exec door (`docs/protocols/exec.md`).
//!
//! A program can be client and server. This one starts itself as the server, runs a process there and reads its output:
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
//!     let mut printed = Vec::new();
//!     while let Some(output) = process.next_output().await? {
//!         printed.extend(output.bytes);
//!     }
//!     assert_eq!(printed, b"hello\n");
//!     assert_eq!(process.wait().await?, 3);
//!     Ok(())
//! }
//! ```

pub use parlor_client::exec::{
    ExecDirectoryEntry, ExecFileMetadata, ExecFinished, ExecOutput, ExecOutputPage, ExecProcess,
    ExecProcessEvent, ExecProcessParams, ExecProcessPosition, ExecProcessStream, ExecServerClient,
    ExecServerError, ExecServerLaunchCommand, ExecServerProcess, MAX_PENDING_CALLS, OUTPUT_BACKLOG_BYTES,
};
pub use parlor_doors::exec::{
    ByteChunk, DEFAULT_OUTPUT_BYTES_CAP, ExecExitedNotification, ExecOutputDeltaNotification,
    ExecOutputStream, ExecParams, ExecResponse, InitializeParams, InitializeResponse, PROTOCOL_VERSION,
    TerminateParams, TerminateResponse, WriteParams, WriteResponse,
};

/// Serves standard input and output until the input ends or the program gets SIGTERM, SIGINT or SIGHUP. When it returns, all
/// started processes have ended.
///
/// Needs a tokio runtime with I/O and time enabled; one thread is enough. No other code of the program may write to
/// standard output.
pub async fn run_main() -> std::io::Result<()> {
    parlor_transport::serve_stdio(
        parlor_doors::exec::ExecMachine::default(),
        parlor_process::Executor::new(parlor_process::Processes::default()),
    )
    .await
}
