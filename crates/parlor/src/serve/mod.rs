//! `parlor serve`: the doors on the network.

mod address;
mod claim;
mod supex;

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;

use self::claim::{Addresses, Claim};

/// Which doors are opened, and where.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the Supex bridge listens; port 0 picks a free one [default: 127.0.0.1:9876]
    #[arg(long, value_name = "ADDR", overrides_with = "supex")]
    supex: Option<String>,
    /// Where the Supex REPL listens; port 0 picks a free one [default: 127.0.0.1:4433]
    #[arg(long, value_name = "ADDR", overrides_with = "supex_repl")]
    supex_repl: Option<String>,
    /// Open neither of the two
    #[arg(long, conflicts_with_all = ["supex", "supex_repl"])]
    no_supex: bool,
}

/// Opens the doors and serves them until the program is asked to end.
pub(crate) fn serve(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(serve_doors(environment, options, console, out));
    // What still waits for a disk is not waited for.
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

async fn serve_doors(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let asked_to_end = parlor_host::asked_to_end()?;
    let home = Home::open(environment)?;
    let config = &home.config().supex;
    let plan = match options.no_supex {
        true => supex::Plan::default(),
        false => {
            let (bridge, repl) = (options.supex.as_deref(), options.supex_repl.as_deref());
            supex::plan(bridge, repl, config, &environment.supex)?
        }
    };
    if plan.is_empty() {
        bail!("no door is to be opened; leave out --no-supex, or name an address with --supex ADDR");
    }
    let mut claim = Claim::take(home.path())?;
    let doors = supex::open(&plan, home.path(), config, environment).await?;
    let addresses = Addresses { supex: doors.bridge_address(), supex_repl: doors.repl_address() };
    claim.publish(&addresses)?;
    if console.output {
        say_hello(out, &addresses)?;
    }
    let stop = CancellationToken::new();
    let serving = doors.serve(stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        () = asked_to_end => stop.cancel(),
        () = &mut serving => {}
    }
    if stop.is_cancelled() {
        serving.await;
    }
    claim.withdraw();
    Ok(())
}

/// For a person at a terminal; programs read `serve.json`.
fn say_hello(out: &mut dyn Write, addresses: &Addresses) -> anyhow::Result<()> {
    writeln!(out, "parlor is serving; Ctrl-C ends it.")?;
    if let Some(address) = addresses.supex {
        writeln!(out, "  Supex bridge  {address}")?;
    }
    if let Some(address) = addresses.supex_repl {
        writeln!(out, "  Supex REPL    {address}")?;
    }
    if addresses.supex.is_some() {
        writeln!(out, "In another terminal:  parlor supex eval '1 + 1'    or  parlor supex status")?;
        writeln!(out, "What it speaks:       docs/protocols/supex.md")?;
    }
    out.flush()?;
    Ok(())
}
