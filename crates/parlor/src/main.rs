//! The `parlor` command.

fn main() -> std::process::ExitCode {
    parlor_app::main()
}
