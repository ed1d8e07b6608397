//! TLS to the server, as `sslmode` asks for it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, PostgresLog, PostgresOptions, SystemClock};
use parlor_vocab::Seq;
use tokio::task::block_in_place;

use super::{ids, in_time, new_entry, open, session};

/// Makes an authority, and a certificate for `localhost` that it issued, with the key of the server.
#[expect(clippy::disallowed_methods, reason = "a test makes its certificates with openssl")]
fn make_certificates(folder: &Path) {
    let script = "set -e
        new_key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
        for ca in ca other; do
            openssl req -x509 $new_key -keyout $ca.key -out $ca.crt -subj /CN=$ca
        done
        openssl req $new_key -keyout server.key -out server.csr -subj /CN=parlor
        printf 'subjectAltName=DNS:localhost' >names
        openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out server.crt";
    let made = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let key = folder.join("server.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        // The server runs as nobody then.
        chown(key, Some(65534), Some(65534)).unwrap();
    }
}

/// A server proves its name and its issuer if the URL asks for that, and parlor refuses one that cannot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_has_to_prove_what_sslmode_asks_for() {
    in_time(async {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(folder.path());
        let file = |name: &str| folder.path().join(name).display().to_string();
        let settings = format!(
            "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'",
            file("server.crt"),
            file("server.key")
        );
        let server = block_in_place(|| TestServer::start(&settings));
        let database = server.new_database().await;
        let options = |host: &str, mode: &str, ca: Option<&str>| {
            let roots = ca.map(|ca| format!("&sslrootcert={}", file(ca))).unwrap_or_default();
            let (port, query) = (server.port(), format!("sslmode={mode}{roots}"));
            PostgresOptions::new(format!("postgres://parlor@{host}:{port}/{database}?{query}"), "a")
        };
        let log = open(options("localhost", "verify-full", Some("ca.crt"))).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("x")]).await.unwrap();
        assert_eq!(ids(&log, "s").await, ["x"]);
        let client = server.client(&database).await;
        let sql = "SELECT s.ssl FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid)
            WHERE a.application_name = 'parlor'";
        let is_encrypted: Vec<bool> =
            client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert!(is_encrypted.len() >= 4 && !is_encrypted.contains(&false), "{is_encrypted:?}");
        for (host, mode, ca) in [
            ("127.0.0.1", "verify-ca", Some("ca.crt")),
            ("127.0.0.1", "require", Some("ca.crt")),
            ("127.0.0.1", "require", None),
            ("127.0.0.1", "prefer", None),
        ] {
            open(options(host, mode, ca)).await;
        }
        for (host, mode, ca) in [
            // The certificate is for localhost.
            ("127.0.0.1", "verify-full", Some("ca.crt")),
            ("localhost", "verify-full", Some("other.crt")),
            ("localhost", "verify-ca", Some("other.crt")),
            ("localhost", "require", Some("other.crt")),
            // The system does not know the authority.
            ("localhost", "verify-full", None),
        ] {
            let opened = PostgresLog::open(options(host, mode, ca), Arc::new(SystemClock)).await;
            let error = opened.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("certificate"), "{host} {mode} {ca:?}: {error}");
        }
    })
    .await;
}
