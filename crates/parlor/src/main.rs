//! The `parlor` command. All code is in `parlor-app`.

fn main() -> std::process::ExitCode {
    parlor_app::main(env!("PARLOR_COMMIT"))
}
