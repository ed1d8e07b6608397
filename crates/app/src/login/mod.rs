//! `parlor login`, `parlor logout` and `parlor auth`: keys and the logins of `parlor-auth`, for people.

mod key;
mod list;
mod open;
mod out;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use parlor_auth::{
    DeviceCode, Flow, LoginDeps, LoginManager, LoginOutcome, LoginProgress, LoginRequest, LoginWay,
    LoginWayWanted, Redactor, Secret, SecretStore,
};
use parlor_log::SystemClock;
use parlor_transport::Peer;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use list::{ListOptions, list};
pub(crate) use open::is_headless;
pub(crate) use out::{LogoutOptions, logout};

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::settings::Config;
use crate::text;

/// What the program exits with when it was interrupted.
const INTERRUPTED: u8 = 130;

/// How much of what a provider says about an account is shown.
const LABEL_COLUMNS: usize = 60;

/// What to log in to, and how.
#[derive(Args)]
pub(crate) struct LoginOptions {
    /// The NAME of an [auth.NAME] in parlor.toml; with --key, whose key it is: openai, anthropic, …
    #[arg(value_name = "PROVIDER")]
    provider: String,
    /// Keep a key in the place of logging in: it is asked for without being shown, or read from a pipe
    #[arg(long, conflicts_with_all = ["device", "browser", "no_open"])]
    key: bool,
    /// Log in with a code that is entered on any device
    #[arg(long, conflicts_with = "browser")]
    device: bool,
    /// Log in with a browser on this machine
    #[arg(long)]
    browser: bool,
    /// Only print the address, and do not open a browser
    #[arg(long)]
    no_open: bool,
}

/// Logs in.
pub(crate) fn login(
    environment: &Environment,
    options: &LoginOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let (logins, redactor, name) = (home.keys().logins(), home.keys().redactor(), &options.provider);
        if options.key {
            return key::keep(home, name, console, out);
        }
        if !home.config().auth.contains_key(name) {
            let has_key = key::known(home.config()).contains(name.as_str());
            let key = if has_key {
                format!("to keep a key, run: parlor login {name} --key; ")
            } else {
                String::new()
            };
            bail!(
                "no login is configured for {name:?}; {key}[auth.NAME] in parlor.toml describes one (docs/auth.md)"
            );
        }
        let headless = is_headless(&environment.for_desktop());
        let way = match (options.device, options.browser) {
            (true, _) => LoginWayWanted::Only(LoginWay::Device),
            (_, true) => LoginWayWanted::Only(LoginWay::Browser),
            _ if headless => LoginWayWanted::Device,
            _ => LoginWayWanted::Browser,
        };
        let flow = logins.start(name, LoginRequest { way, ..LoginRequest::default() })?;
        // A browser that nobody sees would only be in the way.
        let opens = !options.no_open && !headless;
        let mut guide = LoginScreen { environment, opens, console, redactor, out };
        let done = guide.follow(flow).await;
        if let Some(reason) = home.keys().store().trouble() {
            eprintln!("{}", key::without_keyring(&reason));
        }
        done
    })
}

/// Does something with the keys and logins of the state folder.
fn with_home(
    environment: &Environment,
    work: impl AsyncFnOnce(&Home) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let home = Home::open(environment)?;
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work(&home));
    runtime.shutdown_background();
    // Errors are made without secrets; this is for those that nobody has thought of.
    done.map_err(|error| {
        let text = format!("{error:#}");
        match home.keys().redactor().redact(&text) {
            std::borrow::Cow::Borrowed(_) => error,
            std::borrow::Cow::Owned(clean) => anyhow::anyhow!(clean),
        }
    })
}

/// The logins that are configured, kept in `store`.
pub(crate) fn logins(config: &Config, store: SecretStore, redactor: &Redactor) -> LoginManager {
    let providers = config.auth.iter().map(|(name, login)| {
        let provider = login.provider.clone();
        match login.client_secret_env.as_ref().map(|variable| (variable, Environment::secret(variable))) {
            None => provider,
            Some((_, Some(secret))) => provider.with_client_secret(Secret::new(secret)),
            Some((variable, None)) => provider.lacking_client_secret(format!(
                "{variable} is not set; auth.{name}.client_secret_env says that it holds the client secret"
            )),
        }
    });
    let providers = providers.collect();
    let (clock, redactor) = (Arc::new(SystemClock), redactor.clone());
    LoginManager::new(LoginDeps { providers, store, clock, redactor, admits_peer: Arc::new(is_of_this_user) })
}

/// Whether this user or root is at the other end.
fn is_of_this_user(stream: &TcpStream) -> bool {
    Peer::of(stream).is_ok_and(|peer| peer.user().is_owner())
}

/// Guides a person through a login.
struct LoginScreen<'a> {
    environment: &'a Environment,
    opens: bool,
    console: Console,
    redactor: &'a Redactor,
    out: &'a mut dyn Write,
}

impl LoginScreen<'_> {
    async fn follow(&mut self, mut flow: Flow) -> anyhow::Result<ExitCode> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            let progress = tokio::select! {
                progress = flow.next() => progress.context("the login ended without a word")?,
                _ = interrupt.recv() => { flow.cancel(); continue }
                _ = terminate.recv() => { flow.cancel(); continue }
            };
            match progress {
                LoginProgress::Started => {}
                LoginProgress::Url { way: LoginWay::Browser, url } => self.show_url(&url)?,
                // It is shown together with the code.
                LoginProgress::Url { way: LoginWay::Device, .. } => {}
                LoginProgress::DeviceCode(code) => self.show_code(&code)?,
                LoginProgress::Completed(login) => {
                    self.show_end(&login)?;
                    return Ok(ExitCode::SUCCESS);
                }
                LoginProgress::Cancelled => {
                    eprintln!("The login was cancelled.");
                    return Ok(ExitCode::from(INTERRUPTED));
                }
                LoginProgress::Failed(error) => bail!(error),
            }
        }
    }

    fn show_url(&mut self, url: &str) -> anyhow::Result<()> {
        let opened = self.opens && open::open(self.environment, url);
        if opened && self.console.output {
            self.say("Your browser is asked to open this address. If it does not, open it yourself:")?;
        } else if self.console.output {
            self.say("Open this address in a browser on this machine:")?;
        }
        self.say(url)?;
        self.wait_hint()
    }

    fn show_code(&mut self, code: &DeviceCode) -> anyhow::Result<()> {
        let user_code = text::cut(&code.user_code, LABEL_COLUMNS);
        let address = text::cut(&code.verification_url, code.verification_url.len());
        self.say(&format!("Open {address} on any device and enter this code: {user_code}"))?;
        if self.opens {
            open::open(self.environment, code.complete_url.as_deref().unwrap_or(&code.verification_url));
        }
        self.wait_hint()
    }

    fn show_end(&mut self, login: &LoginOutcome) -> anyhow::Result<()> {
        let whose = login.account.as_ref().and_then(|account| account.label());
        let whose =
            whose.map_or_else(String::new, |label| format!(" as {}", text::cut(label, LABEL_COLUMNS)));
        self.say(&format!("Logged in to {}{whose}.", login.provider))
    }

    /// For people: a program that reads our output has no use for it.
    fn wait_hint(&self) -> anyhow::Result<()> {
        if self.console.output {
            eprintln!("{}", self.console.style.dim("Waiting until you have agreed there; Ctrl-C cancels."));
        }
        Ok(())
    }

    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{}", self.redactor.redact(line))?;
        Ok(self.out.flush()?)
    }
}
