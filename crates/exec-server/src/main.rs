//! The `codex-exec-server` program. It ignores its arguments.

fn main() -> std::io::Result<()> {
    parlor_transport::block_on(codex_exec_server::run_main())
}
