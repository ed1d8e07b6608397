//! Connections to the server: the URL, TLS, and statements that are prepared once for each connection.
//!
//! The URL is that of libpq, with several hosts for a primary and its standbys. Only a server that accepts writes is used.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Notification, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::db_error::{DbError, describe_reported};
use super::tls::{self, Verify};
use crate::LogError;

/// How long an attempt to connect to one host may take, with TLS and the login.
pub const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// The next host is tried when an attempt takes longer than this, or fails; the attempt goes on. Short, so that a heartbeat
/// reaches the second host in time if the first accepts connections and says nothing.
pub const NEXT_HOST_WAIT: Duration = Duration::from_millis(250);

/// An idle connection is probed after this time, and then once in this time.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection is lost when the server's machine has not acknowledged anything for this time.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// The pause before the second attempt to connect; each further pause is twice as long, up to [`MAX_BACKOFF`].
pub const MIN_BACKOFF: Duration = Duration::from_millis(20);

/// The longest pause between two attempts to connect.
pub const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// Makes connections to one log.
pub(super) struct Connector {
    /// One for each host.
    configs: Vec<Config>,
    /// The host that accepted the last connection. It is tried first.
    preferred: AtomicUsize,
    tls: Option<MakeRustlsConnect>,
    /// The hosts and the database, for error messages. Without user and password.
    store: String,
}

/// Is called for each notification of a connection.
pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;

impl Connector {
    /// Parses `url`. `password` replaces the one in the URL.
    pub(super) fn new(url: &str, password: Option<&str>) -> Result<Self, LogError> {
        let refused = |reason: String| LogError::Database {
            // The URL may contain a password, so no error repeats it.
            store: "postgres://…".to_owned(),
            source: reason.into(),
        };
        let (plain_url, own) = OwnParameters::split_off(url).map_err(refused)?;
        let mut config: Config = plain_url.parse().map_err(|error| refused(describe_reported(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(refused("the URL names no host".to_owned()));
        }
        if let Some(password) = password {
            config.password(password);
        }
        if let Some(schema) = &own.search_path {
            let options = config.get_options().map_or_else(String::new, |options| format!("{options} "));
            config.options(format!("{options}-c search_path={}", escape_option(schema)));
        }
        if config.get_application_name().is_none() {
            config.application_name("parlor");
        }
        let verify = own.verify(&config).map_err(refused)?;
        config.ssl_mode(verify.0);
        let tls = match verify.1 {
            None => None,
            Some(verify) => Some(tls::connector(verify, own.root_certificates.as_deref()).map_err(refused)?),
        };
        let configs = split_hosts(&config).map_err(refused)?;
        Ok(Self { store: store_name(&config), configs, preferred: AtomicUsize::new(0), tls })
    }

    /// The hosts and the database, for error messages.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Connects to the first host that accepts writes.
    pub(super) async fn connect(&self) -> Result<Connection, DbError> {
        self.connect_and_listen(Arc::new(|_| ())).await
    }

    /// Connects, and calls `on_notification` for each notification.
    pub(super) async fn connect_and_listen(
        &self,
        on_notification: OnNotification,
    ) -> Result<Connection, DbError> {
        let (count, preferred) = (self.configs.len(), self.preferred.load(Ordering::Relaxed));
        let mut hosts = (0..count).map(|offset| (preferred + offset) % count);
        let (mut attempts, mut failure) = (FuturesUnordered::new(), None);
        loop {
            attempts.extend(hosts.next().map(|host| {
                let attempt = self.connect_to(host, Arc::clone(&on_notification));
                attempt.map(move |connected| (host, connected))
            }));
            let has_more_hosts = hosts.len() > 0;
            tokio::select! {
                Some((host, connected)) = attempts.next() => match connected {
                    Ok(connection) => {
                        self.preferred.store(host, Ordering::Relaxed);
                        return Ok(connection);
                    }
                    // What a server says is of more use than the silence of another.
                    Err(error) if failure.is_none() || error.code().is_some() => failure = Some(error),
                    Err(_) => {}
                },
                () = sleep(NEXT_HOST_WAIT), if has_more_hosts => {}
            }
            if let Some(failure) = failure.take_if(|_| attempts.is_empty() && !has_more_hosts) {
                return Err(failure);
            }
        }
    }

    async fn connect_to(&self, host: usize, on_notification: OnNotification) -> Result<Connection, DbError> {
        let config = &self.configs[host];
        match timeout(CONNECT_WAIT, self.connect_with(config, on_notification)).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(DbError::Silent { host: store_name(config) }),
        }
    }

    async fn connect_with(
        &self,
        config: &Config,
        on_notification: OnNotification,
    ) -> Result<Connection, tokio_postgres::Error> {
        let connection = match &self.tls {
            Some(tls) => start(config, tls.clone(), on_notification).await?,
            None => start(config, NoTls, on_notification).await?,
        };
        // An operator's timeouts must not cancel an append: a commit that waits for a standby would then count as done.
        connection.client.batch_execute(CONNECTION_SETTINGS).await?;
        Ok(connection)
    }
}

/// Settings that a server's version does not know are left out. Compiling a plan to machine code takes longer than any of
/// these statements. A commit that does not wait for the disk would break the promise of an append, and a server that sends
/// no warnings would not tell that the wait for a standby was cancelled.
const CONNECTION_SETTINGS: &str = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
        'statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout',
        'idle_in_transaction_session_timeout', 'jit');
    SELECT set_config('client_min_messages', 'warning', false);
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The function of the server that waits for standbys, as its warnings name it.
const SYNC_WAIT_ROUTINE: &str = "SyncRepWaitForLSN";

async fn start<T>(
    config: &Config,
    tls: T,
    on_notification: OnNotification,
) -> Result<Connection, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket> + Send,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut driver) = config.connect(tls).await?;
    let sync_wait_cancelled = Arc::new(AtomicBool::new(false));
    let (closed, closed_receiver) = watch::channel(());
    let cancelled = Arc::clone(&sync_wait_cancelled);
    let task = tokio::spawn(async move {
        // Dropped when the connection ends, which wakes those who wait for that.
        let _closed = closed;
        while let Some(Ok(message)) = poll_fn(|context| driver.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = &message {
                on_notification(notification);
            }
            if let AsyncMessage::Notice(notice) = &message {
                let is_warning =
                    *notice.code() == SqlState::WARNING || *notice.code() == SqlState::ADMIN_SHUTDOWN;
                if is_warning {
                    tracing::warn!(notice = notice.message(), "the database warns");
                }
                // The server sends this before it reports the statement as done, so the flag is set in time. The text is
                // in the server's language; the name of the routine is not.
                if is_warning && notice.routine() == Some(SYNC_WAIT_ROUTINE) {
                    cancelled.store(true, Ordering::Release);
                }
            }
        }
    });
    Ok(Connection {
        client,
        statements: HashMap::new(),
        sync_wait_cancelled,
        closed: closed_receiver,
        driver: task,
    })
}

/// A connection with its prepared statements.
pub(super) struct Connection {
    client: Client,
    statements: HashMap<String, Statement>,
    sync_wait_cancelled: Arc<AtomicBool>,
    closed: watch::Receiver<()>,
    driver: tokio::task::JoinHandle<()>,
}

impl Connection {
    /// Runs a statement, which is prepared when it is used for the first time. Only for texts of which there are few.
    pub(super) async fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DbError> {
        let statement = match self.statements.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).await?;
                self.statements.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, params).await?)
    }

    pub(super) fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether the server warned, since the last call, that a commit did not wait for its standby.
    pub(super) fn take_sync_wait_cancelled(&self) -> bool {
        self.sync_wait_cancelled.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Waits until the connection is lost.
    pub(super) async fn closed(&self) {
        // Nothing is ever sent, so this ends when the sender is dropped.
        let _ = self.closed.clone().changed().await;
    }

    /// Closes the socket without waiting for a statement that is under way. The server completes it nevertheless.
    pub(super) fn abandon(self) {
        self.driver.abort();
    }
}

/// Counts the failed attempts to connect, and tells how long to wait before the next.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = MIN_BACKOFF.saturating_mul(1 << self.0.min(10)).min(MAX_BACKOFF);
        self.0 += 1;
        pause
    }
}

/// The parameters of a URL that the driver does not know.
#[derive(Default)]
struct OwnParameters {
    ssl_mode: Option<String>,
    root_certificates: Option<String>,
    search_path: Option<String>,
}

impl OwnParameters {
    /// Returns the URL without these parameters, and the parameters.
    fn split_off(url: &str) -> Result<(String, Self), String> {
        let mut own = Self::default();
        let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), own)) };
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = || {
                let decoded = percent_decode_str(value).decode_utf8();
                decoded.map(|value| Some(value.into_owned())).map_err(|_| format!("{key} is not UTF-8"))
            };
            match key {
                "sslmode" => own.ssl_mode = decode()?,
                "sslrootcert" => own.root_certificates = decode()?,
                "search_path" => own.search_path = decode()?,
                _ => others.push(pair),
            }
        }
        let separator = if others.is_empty() { "" } else { "?" };
        Ok((format!("{base}{separator}{}", others.join("&")), own))
    }

    /// Whether to use TLS, and what to verify. Without `sslmode`, a server on another machine has to prove its name.
    fn verify(&self, config: &Config) -> Result<(SslMode, Option<Verify>), String> {
        let unverified = if self.root_certificates.is_some() { Verify::Issuer } else { Verify::Nothing };
        match self.ssl_mode.as_deref() {
            Some("disable") => Ok((SslMode::Disable, None)),
            Some("prefer") => Ok((SslMode::Prefer, Some(unverified))),
            Some("require") => Ok((SslMode::Require, Some(unverified))),
            Some("verify-ca") => Ok((SslMode::Require, Some(Verify::Issuer))),
            Some("verify-full") => Ok((SslMode::Require, Some(Verify::IssuerAndName))),
            Some(other) => Err(format!(
                "sslmode is {other:?}; choose disable, prefer, require, verify-ca or verify-full"
            )),
            None if is_local(config) => Ok((SslMode::Disable, None)),
            None => Ok((SslMode::Require, Some(Verify::IssuerAndName))),
        }
    }
}

/// Whether all hosts are on this machine, also by the addresses that the URL gives beside their names.
fn is_local(config: &Config) -> bool {
    let are_names_local = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        Host::Unix(_) => true,
    });
    are_names_local && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

/// The configuration of each host alone.
fn split_hosts(config: &Config) -> Result<Vec<Config>, String> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(format!("the URL names {} hosts and {} ports", hosts.len(), ports.len()));
    }
    if !addresses.is_empty() && addresses.len() != hosts.len() {
        return Err(format!("the URL names {} hosts and {} addresses", hosts.len(), addresses.len()));
    }
    let split = hosts.iter().enumerate().map(|(number, host)| {
        let mut single = Config::new();
        match host {
            Host::Tcp(name) => single.host(name),
            Host::Unix(path) => single.host_path(path),
        };
        addresses.get(number).map(|address| single.hostaddr(*address));
        ports.get(number).or(ports.first()).map(|port| single.port(*port));
        config.get_user().map(|user| single.user(user));
        config.get_password().map(|password| single.password(password));
        config.get_dbname().map(|name| single.dbname(name));
        config.get_options().map(|options| single.options(options));
        config.get_application_name().map(|name| single.application_name(name));
        single.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
        single.channel_binding(config.get_channel_binding());
        single.target_session_attrs(TargetSessionAttrs::ReadWrite);
        single.connect_timeout(CONNECT_WAIT).tcp_user_timeout(SILENCE_LIMIT);
        single.keepalives_idle(KEEPALIVE_INTERVAL).keepalives_interval(KEEPALIVE_INTERVAL);
        single.keepalives_retries(u32::try_from(SILENCE_LIMIT.as_secs()).unwrap_or(1));
        single
    });
    Ok(split.collect())
}

/// The password in a URL.
pub(super) fn password_in(url: &str) -> Option<String> {
    let (plain_url, _) = OwnParameters::split_off(url).ok()?;
    let config: Config = plain_url.parse().ok()?;
    config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
}

/// The hosts and the database.
fn store_name(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(number, host)| {
        let port = ports.get(number).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    });
    let hosts: Vec<String> = hosts.collect();
    format!("postgres://{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

/// The server splits its options at spaces that have no backslash.
fn escape_option(value: &str) -> String {
    value.replace('\\', "\\\\").replace(' ', "\\ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_and_a_schema_can_be_named() {
        let url = "postgres://p:secret@a.example,b.example:5433/db?sslmode=disable&search_path=my%20schema&connect_timeout=9";
        let connector = Connector::new(url, None).unwrap();
        assert_eq!(connector.store(), "postgres://a.example:5432,b.example:5433/db");
        let hosts: Vec<_> = connector.configs.iter().map(|config| config.get_hosts()).collect();
        assert_eq!(hosts, [[Host::Tcp("a.example".to_owned())], [Host::Tcp("b.example".to_owned())]]);
        for config in &connector.configs {
            assert_eq!((config.get_user(), config.get_password()), (Some("p"), Some(&b"secret"[..])));
            assert_eq!(config.get_options(), Some("-c search_path=my\\ schema"));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
            assert_eq!(config.get_ssl_mode(), SslMode::Disable);
        }
    }

    #[test]
    fn a_remote_server_has_to_prove_its_name_unless_the_url_says_otherwise() {
        let mode = |url: &str| {
            let (plain, own) = OwnParameters::split_off(url).unwrap();
            own.verify(&plain.parse().unwrap()).unwrap()
        };
        assert_eq!(mode("postgres://db.example/x"), (SslMode::Require, Some(Verify::IssuerAndName)));
        assert_eq!(mode("postgres://127.0.0.1/x"), (SslMode::Disable, None));
        assert_eq!(mode("postgres://%2Frun%2Fpostgresql/x"), (SslMode::Disable, None));
        assert_eq!(
            mode("postgres://db.example/x?sslmode=require"),
            (SslMode::Require, Some(Verify::Nothing))
        );
        let with_roots = "postgres://db.example/x?sslmode=require&sslrootcert=%2Fca.pem";
        assert_eq!(mode(with_roots), (SslMode::Require, Some(Verify::Issuer)));
    }

    #[test]
    fn errors_do_not_repeat_the_password() {
        for url in ["postgres://u:secret@h/x?sslmode=maybe", "postgres://u:secret@h/x?nonsense=1", "u:secret"]
        {
            let error = Connector::new(url, None).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..40).map(|_| backoff.next_pause()).collect();
        assert_eq!(pauses[0], MIN_BACKOFF);
        assert!(pauses.is_sorted());
        assert_eq!(pauses[39], MAX_BACKOFF);
    }
}
