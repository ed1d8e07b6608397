//! `parlor login`, `parlor logout` and `parlor auth`: the command line for the keys and logins of `parlor-auth`.

mod browser;
mod key;
mod list;
mod logout;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use parlor_auth::{
    DeviceCode, LoginDeps, LoginFlow, LoginManager, LoginOutcome, LoginPreference, LoginProgress,
    LoginRequest, PendingLogin, Redactor, Secret, SecretStore,
};
use parlor_log::SystemClock;
use parlor_transport::ConnectedPeer;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use browser::{BrowserOpener, is_headless};
pub(crate) use key::known_services;
pub(crate) use list::{ListOptions, list};
pub(crate) use logout::{LogoutOptions, logout};

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::settings::Config;
use crate::text;

/// The exit status after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Texts of a provider, such as an account name, are truncated to this many columns.
const LABEL_COLUMNS: usize = 60;

/// The arguments of `parlor login`.
#[derive(Args)]
pub(crate) struct LoginOptions {
    /// The NAME of an [auth.NAME] in parlor.toml; with --key, the service of the key: openai, anthropic, …
    #[arg(value_name = "PROVIDER")]
    provider: String,
    /// Store an API key instead of logging in; the key is read from a prompt without echo, or from a pipe
    #[arg(long, conflicts_with_all = ["device", "browser", "no_open"])]
    key: bool,
    /// Log in with a code that you enter on any device
    #[arg(long, conflicts_with = "browser")]
    device: bool,
    /// Log in with a browser on this machine
    #[arg(long)]
    browser: bool,
    /// Print the address without opening a browser
    #[arg(long)]
    no_open: bool,
}

impl LoginOptions {
    /// A login to `provider`, or with `key` the question for its key.
    pub(crate) fn new(provider: String, key: bool) -> Self {
        Self { provider, key, device: false, browser: false, no_open: false }
    }
}

/// Runs `parlor login`: logs in, or stores a key.
pub(crate) fn login(
    environment: &Environment,
    options: &LoginOptions,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    with_home(environment, async |home| {
        let (logins, redactor, name) = (home.keys().logins(), home.keys().redactor(), &options.provider);
        if options.key {
            return key::ask_and_store(home, name, console, out);
        }
        if !home.config().auth.contains_key(name) {
            let takes_key = key::known_services(home.config()).contains(name.as_str());
            let key_hint = if takes_key {
                format!("to store a key, run: parlor login {name} --key; ")
            } else {
                String::new()
            };
            bail!(
                "no login is configured for {name:?}; {key_hint}to configure one, add [auth.NAME] to parlor.toml (docs/auth.md)"
            );
        }
        let headless = is_headless(&environment.for_desktop());
        let preference = match (options.device, options.browser) {
            (true, _) => LoginPreference::Only(LoginFlow::Device),
            (_, true) => LoginPreference::Only(LoginFlow::Browser),
            _ if headless => LoginPreference::Device,
            _ => LoginPreference::Browser,
        };
        let flow = logins.start(name, LoginRequest { preference, ..LoginRequest::default() })?;
        // Without a screen, nobody could see the browser.
        let opens_browser = !options.no_open && !headless;
        let mut screen = LoginScreen { environment, opens_browser, console, redactor, out };
        let done = screen.follow(flow).await;
        if let Some(reason) = home.keys().store().keyring_error() {
            eprintln!("{}", key::keyring_unused(&reason));
        }
        done
    })
}

/// Runs `work` with the state folder, and removes secrets from its error.
pub(crate) fn with_home(
    environment: &Environment,
    work: impl AsyncFnOnce(&Home) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let home = Home::open(environment)?;
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work(&home));
    runtime.shutdown_background();
    // Errors should not contain secrets; this catches any that do.
    done.map_err(|error| {
        let text = format!("{error:#}");
        match home.keys().redactor().redact(&text) {
            std::borrow::Cow::Borrowed(_) => error,
            std::borrow::Cow::Owned(clean) => anyhow::anyhow!(clean),
        }
    })
}

/// A manager for the configured logins, which stores their tokens in `store`.
pub(crate) fn logins(config: &Config, store: SecretStore, redactor: &Redactor) -> LoginManager {
    let providers = config.auth.iter().map(|(name, login)| {
        let provider = login.provider.clone();
        match login.client_secret_env.as_ref().map(|variable| (variable, Environment::secret(variable))) {
            None => provider,
            Some((_, Some(secret))) => provider.with_client_secret(Secret::new(secret)),
            Some((variable, None)) => provider.without_client_secret(format!(
                "{variable} is not set; set it to the client secret, as auth.{name}.client_secret_env demands"
            )),
        }
    });
    let providers = providers.collect();
    let (clock, redactor) = (Arc::new(SystemClock), redactor.clone());
    LoginManager::new(LoginDeps { providers, store, clock, redactor, admits_peer: Arc::new(is_own_user) })
}

/// Whether the peer process belongs to this user or to root.
pub(crate) fn is_own_user(stream: &TcpStream) -> bool {
    ConnectedPeer::from_stream(stream).is_ok_and(|peer| peer.user().is_owner())
}

/// Shows the steps of a login with a browser to a person, until it has ended.
pub(crate) async fn follow(
    environment: &Environment,
    home: &Home,
    flow: PendingLogin,
    no_open: bool,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let opens_browser = !no_open && !is_headless(&environment.for_desktop());
    let redactor = home.keys().redactor();
    let mut screen = LoginScreen { environment, opens_browser, console, redactor, out };
    screen.follow(flow).await
}

/// Shows the steps of a login to a person.
struct LoginScreen<'a> {
    environment: &'a Environment,
    opens_browser: bool,
    console: Console,
    redactor: &'a Redactor,
    out: &'a mut dyn Write,
}

impl LoginScreen<'_> {
    async fn follow(&mut self, mut flow: PendingLogin) -> anyhow::Result<ExitCode> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            let progress = tokio::select! {
                progress = flow.next() => progress.context("the login ended without a result")?,
                _ = interrupt.recv() => { flow.cancel(); continue }
                _ = terminate.recv() => { flow.cancel(); continue }
            };
            match progress {
                LoginProgress::Started => {}
                LoginProgress::Url { flow: LoginFlow::Browser, url } => self.show_url(&url)?,
                // `show_code` prints the address together with the code.
                LoginProgress::Url { flow: LoginFlow::Device, .. } => {}
                LoginProgress::DeviceCode(code) => self.show_code(&code)?,
                LoginProgress::Completed(login) => {
                    self.show_outcome(&login)?;
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
        let opened = self.opens_browser && BrowserOpener::new(self.environment).open(url);
        if opened && self.console.stdout_is_terminal {
            self.print("Opening this address in your browser. If nothing opens, open it yourself:")?;
        } else if self.console.stdout_is_terminal {
            self.print("Open this address in a browser on this machine:")?;
        }
        self.print(url)?;
        self.show_wait_hint()
    }

    fn show_code(&mut self, code: &DeviceCode) -> anyhow::Result<()> {
        let user_code = text::truncate(&code.user_code, LABEL_COLUMNS);
        let address = text::truncate(&code.verification_url, code.verification_url.len());
        self.print(&format!("Open {address} on any device and enter this code: {user_code}"))?;
        if self.opens_browser {
            let url = code.complete_url.as_deref().unwrap_or(&code.verification_url);
            BrowserOpener::new(self.environment).open(url);
        }
        self.show_wait_hint()
    }

    fn show_outcome(&mut self, login: &LoginOutcome) -> anyhow::Result<()> {
        let whose = login.account.as_ref().and_then(|account| account.label());
        let whose =
            whose.map_or_else(String::new, |label| format!(" as {}", text::truncate(label, LABEL_COLUMNS)));
        self.print(&format!("Logged in to {}{whose}.", login.provider))
    }

    /// Tells a person how to cancel. A program that reads the output does not need it.
    fn show_wait_hint(&self) -> anyhow::Result<()> {
        if self.console.stdout_is_terminal {
            eprintln!("{}", self.console.style.dim("Waiting for your approval there; Ctrl-C cancels."));
        }
        Ok(())
    }

    fn print(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{}", self.redactor.redact(line))?;
        Ok(self.out.flush()?)
    }
}
