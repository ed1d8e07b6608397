//! The `codex-exec-server` program. It takes no arguments and ignores any.

fn main() -> std::io::Result<()> {
    parlor_transport::block_on(codex_exec_server::run_main())
}
