//! What is wrong with a connection is said so that it can be mended.

use std::path::PathBuf;
use std::time::Duration;

use tollgate_redis::link::{Link, Script, Settings, Tls};
use tollgate_testkit::{Directory, RedisServer, free_port};

use super::certificates::certificates;
use super::{PATIENCE, settings, until};

/// A server with TLS on another port.
fn server(folder: &Directory, cert: &str, key: &str) -> (RedisServer, u16) {
    let file = |name: &str| folder.path().join(name).display().to_string();
    let port = free_port();
    let arguments = [
        ["--tls-port", &port.to_string()],
        ["--tls-cert-file", &file(cert)],
        ["--tls-key-file", &file(key)],
        ["--tls-ca-cert-file", &file("ca.pem")],
    ];
    (RedisServer::with(arguments.as_flattened()), port)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_cannot_be_names_what_to_change() {
    let folder = certificates();
    let file = |name: &str| Some(folder.path().join(name));
    let trusting = |ca: &str| Some(Tls { ca_file: file(ca), ..Tls::default() });
    let ours =
        |ca: &str| Some(Tls { ca_file: file(ca), cert_file: file("cert.pem"), key_file: file("key.pem") });
    let (plain, with_tls) = server(&folder, "cert.pem", "key.pem");
    let (_signed_by_itself, by_itself) = server(&folder, "self.pem", "self.key");
    let locked = RedisServer::with(&["--requirepass", "hidden"]);
    for (scheme, port, tls, words) in [
        ("redis", with_tls, None, &["does the server speak TLS?", "`rediss://`"][..]),
        ("rediss", plain.port(), trusting("ca.pem"), &["TLS handshake", "`redis://`", "within 1s"]),
        ("rediss", with_tls, trusting("ca.pem"), &["`cert_file` and `key_file` name ours"]),
        ("rediss", with_tls, ours("self.pem"), &["signed by nobody whom we trust", "`ca_file`"]),
        ("rediss", by_itself, ours("self.pem"), &["that of an authority", "`CA:FALSE`"]),
        ("redis", locked.port(), None, &["asks for a password", "NOAUTH", "`password_file`"]),
    ] {
        let url = format!("{scheme}://127.0.0.1:{port}");
        let link = Link::new(Settings { tls, ..settings(&url) }).unwrap();
        // A stranger who sends something long is cut off, without a word on the password.
        let long = Script::new(format!("return '{}'", "x".repeat(20_000)).leak());
        link.learn(&long);
        let mut reason = String::new();
        let is_told = async || {
            reason = link.health()[0].reason.clone().unwrap_or_default();
            words.iter().all(|words| reason.contains(words))
        };
        tokio::time::timeout(Duration::from_secs(5), until(words[0], is_told))
            .await
            .unwrap_or_else(|_| panic!("{url}: {words:?} is not in: {:?}", link.health()[0].reason));
        assert!(!link.ready(Duration::ZERO).await);
        assert!(!reason.contains("Other(") && !reason.contains("roken pipe"), "{reason}");
    }
}

/// A server that does not know a command repeats what came with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_told_to_nobody_else() {
    let server = RedisServer::with(&["--rename-command", "AUTH", "hidden-command"]);
    let link = Link::new(Settings { password: Some("s3cret".into()), ..settings(&server.url()) }).unwrap();
    let mut reason = String::new();
    until("it is refused", async || {
        reason = link.health()[0].reason.clone().unwrap_or_default();
        reason.contains("refuses the password")
    })
    .await;
    assert!(reason.contains("AUTH is answered `ERR`") && !reason.contains("s3cret"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_signed_itself_is_trusted_if_it_is_no_authority() {
    let folder = certificates();
    let file = |name: &str| Some(folder.path().join(name));
    let (_server, port) = server(&folder, "alone.pem", "key.pem");
    let ours = Tls { ca_file: file("alone.pem"), cert_file: file("cert.pem"), key_file: file("key.pem") };
    let url = format!("rediss://127.0.0.1:{port}");
    let link = Link::new(Settings { tls: Some(ours), ..settings(&url) }).unwrap();
    assert!(link.ready(PATIENCE).await, "{link:?}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_with_what_is_wrong() {
    let folder = certificates();
    let file = |name: &str| folder.path().join(name);
    let shown = |file: PathBuf| file.display().to_string();
    for (cert, key, expected) in [
        (
            "v1.pem",
            "key.pem",
            format!("{}: the certificate is not of X.509 version 3", shown(file("v1.pem"))),
        ),
        (
            "cert.pem",
            "ca.key",
            format!(
                "{}: `key_file` is not the key of `cert_file`, {}",
                shown(file("ca.key")),
                shown(file("cert.pem"))
            ),
        ),
        ("key.pem", "key.pem", format!("{}: no certificate in it", shown(file("key.pem")))),
    ] {
        let tls =
            Tls { ca_file: Some(file("ca.pem")), cert_file: Some(file(cert)), key_file: Some(file(key)) };
        let error = Link::new(Settings { tls: Some(tls), ..settings("rediss://127.0.0.1") }).unwrap_err();
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}
